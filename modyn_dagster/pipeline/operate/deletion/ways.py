"""Ways out for the runs whose models saw deleted samples, and their costs: the cheapest that leaves the pipeline in service."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import sqlalchemy as sa

from modyn_dagster.catalog.results.models import ModelUse
from modyn_dagster.catalog.results.predictions import predictions_holding
from modyn_dagster.catalog.runs import RunRow, choose_run, get_run
from modyn_dagster.catalog.timings import predicted_by_trigger, seconds_by_trigger
from modyn_dagster.errors import ConfigError
from modyn_dagster.keys import KeyArray
from modyn_dagster.pipeline.operate.deletion.document import Cost, PipelineAction, Way
from modyn_dagster.pipeline.operate.sample_lineage import SampleUse
from modyn_dagster.pipeline.platform import Platform, recorded_spec

#: Stages whose seconds making a model again costs.
_STAGES: Final = ("select", "train", "save", "evaluate")
BEGAN: Final = "training.initial_weights holds the weights of a model that saw the samples; give it another file, and replay"


def actions_for(
    conn: sa.Connection, uses: Sequence[SampleUse], models: Sequence[ModelUse], chosen: Mapping[str, Way]
) -> list[PipelineAction]:
    """Choose a way out for each run with a model that saw the samples, in the order of the runs.

    In service are a run's newest model and the champion of its gate. A run in which neither has seen them loses the others, and
    so does one whose models began with a file of weights of such a model. The run that stands for its pipeline (the open live
    run, else the newest replay, else the newest live run) is trained again; every other one is rolled back, or retired where it
    has no clean model.

    Args:
        conn: of the catalog.
        uses: of the samples, in the order of their triggers.
        models: of all runs.
        chosen: ways that a person chose, by pipeline.

    Raises:
        ConfigError: a person chose a way that a run does not have, or names a pipeline without such models.
    """
    by_run: dict[int, list[SampleUse]] = defaultdict(list)
    for use in uses:
        if use.used_by.model_hash is not None:
            by_run[use.used_by.run_id].append(use)
    actions = [_action(conn, get_run(conn, run_id), affected, models, chosen) for run_id, affected in sorted(by_run.items())]
    if unknown := chosen.keys() - {action.pipeline for action in actions}:
        rule = f"has no model that saw the samples; these have: {', '.join(sorted({a.pipeline for a in actions})) or 'none'}"
        raise ConfigError("dataset delete", "--way", min(unknown), rule)
    return actions


def predicting_seconds(conn: sa.Connection, platform: Platform, dataset: str, keys: KeyArray, going: Collection[str]) -> float:
    """Expect the seconds of predictions that models which stay make again; 0 for a file of a lazy evaluation.

    A file that was taken over from an equal model costs what a sample costs on average.

    Args:
        conn: of the catalog.
        platform: of the home.
        dataset: name of the dataset of the samples.
        keys: of the samples, ``uint64[n]``, ascending.
        going: partition keys of the triggers whose models are made again or withdrawn; making again includes their predictions.
    """
    holding = [(trigger, file) for trigger, file in predictions_holding(conn, dataset, keys) if trigger not in going]
    run_ids = {int(trigger.partition("-")[0]) for trigger, _ in holding}
    lazy = {run_id for run_id in run_ids if platform.spec_of(get_run(conn, run_id)).evaluation.matrix == "lazy"}
    predicted = predicted_by_trigger(conn, run_ids - lazy)
    seconds, n_samples = sum(each.seconds for each in predicted.values()), sum(each.n_samples for each in predicted.values())
    rates = {trigger_id: each.seconds / each.n_samples for trigger_id, each in predicted.items()}
    return sum(
        file.n_samples * rates.get(file.trigger_id, seconds / max(1, n_samples))
        for trigger, file in holding
        if int(trigger.partition("-")[0]) not in lazy
    )


def clean_before(models: Sequence[ModelUse], saw: Collection[str], trigger: str) -> str | None:
    """Hash of the newest model of a trigger's run that is older than the trigger and has not seen the samples; None without one.

    Args:
        models: of all runs, in the order of their triggers.
        saw: partition keys of the triggers whose models saw the samples.
        trigger: partition key of the trigger.
    """
    run, _, ordinal = trigger.partition("-")
    older = [each for each in models if each.run_id == int(run) and each.ordinal < int(ordinal)]
    return next((each.hash for each in reversed(older) if each.partition_key not in saw), None)


def _action(
    conn: sa.Connection, run: RunRow, affected: Sequence[SampleUse], models: Sequence[ModelUse], chosen: Mapping[str, Way]
) -> PipelineAction:
    saw = {use.used_by.ordinal for use in affected}
    own = [model for model in models if model.run_id == run.id]
    clean = [model for model in own if model.ordinal not in saw]
    ancestor = clean[-1] if clean else None
    seconds = seconds_by_trigger(conn, run.id)
    triggers = {model.trigger_id for model in own if model.ordinal in saw}
    ledger = sum(seconds.get((trigger, stage), 0.0) for trigger in triggers for stage in _STAGES)
    n = len(triggers)
    from_file = any("initial_weights" in use.sources for use in affected)
    costs = [
        Cost(way="retrain", seconds=ledger, n_models=n, refused=BEGAN if from_file else ""),
        Cost(way="roll_back", seconds=0.0, n_models=0, refused="" if clean else "the run has no model that has not seen them"),
        Cost(way="retire", seconds=0.0, n_models=0),
    ]
    by_person = chosen.get(run.pipeline)
    way = _cheapest(conn, run, own, saw, has_ancestor=ancestor is not None, can_retrain=not from_file)
    action = PipelineAction(
        pipeline=run.pipeline,
        run_id=run.id,
        mode=run.mode,
        way=way,
        by="ledger",
        triggers=[use.used_by.partition_key for use in affected],
        ancestor=None if ancestor is None else ancestor.hash,
        seconds=next(cost.seconds for cost in costs if cost.way == way),
        costs=costs,
    )
    return action if by_person is None else action.on_way(by_person)


def _cheapest(
    conn: sa.Connection, run: RunRow, own: Sequence[ModelUse], saw: set[int], *, has_ancestor: bool, can_retrain: bool
) -> Way:
    standing = choose_run(conn, run.pipeline)
    is_standing = standing is not None and standing.id == run.id
    if can_retrain and is_standing and any(model.ordinal in saw for model in _in_service(run, own)):
        return "retrain"
    return "roll_back" if has_ancestor else "retire"


def _in_service(run: RunRow, own: Sequence[ModelUse]) -> list[ModelUse]:
    """Newest model of a run, and the champion of its gate."""
    newest = list(own[-1:])
    if recorded_spec(run).promotion is None:
        # Such a champion is shown, and nothing else.
        return newest
    return [*newest, *(model for model in own if model.hash == run.champion_model)]
