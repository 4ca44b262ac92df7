"""Three assets of a trigger as plain functions, called by the Dagster ops and inline by a replay; and the finish of a run."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import sqlalchemy as sa

from modyn_dagster.catalog.results.evaluations import EvaluationRow, list_evaluations
from modyn_dagster.catalog.results.models import ModelRow, find_model, list_models
from modyn_dagster.catalog.results.training_sets import TrainingSetRow, find_training_set
from modyn_dagster.catalog.runs import RunRow, get_run, move_run
from modyn_dagster.catalog.triggers import list_triggers, unfinished_trigger
from modyn_dagster.data.view import DatasetView
from modyn_dagster.errors import RunError
from modyn_dagster.evaluation.composite.champion import Verdict, champions
from modyn_dagster.pipeline import checks
from modyn_dagster.pipeline.checks import CheckResult
from modyn_dagster.pipeline.context import TriggerContext, trigger_context
from modyn_dagster.pipeline.platform import Platform, spec_of
from modyn_dagster.pipeline.preflight import require_runnable
from modyn_dagster.pipeline.stages.evaluation.stage import Progress as EvaluationProgress
from modyn_dagster.pipeline.stages.evaluation.stage import evaluate_model
from modyn_dagster.pipeline.stages.model.model_saving import stored_exactly
from modyn_dagster.pipeline.stages.model.stage import train_model
from modyn_dagster.pipeline.stages.training_set.checks import only_train_samples, training_set_checks, training_set_not_empty
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set, select_training_set
from modyn_dagster.progress import ProgressCallback
from modyn_dagster.training import FastPath

StageName = Literal["training_set", "model", "evaluation"]


@dataclass(frozen=True)
class StageResult:
    """What one asset of a trigger partition holds now, and how its checks went.

    ``fresh`` says that it was made or changed just now; otherwise it was read from the catalog.
    """

    stage: StageName
    context: TriggerContext
    row: TrainingSetRow | ModelRow | list[EvaluationRow]
    checks: list[CheckResult]
    fresh: bool = True

    @property
    def partition_key(self) -> str:
        """Of the trigger."""
        return self.context.trigger.partition_key


def training_set_stage(context: TriggerContext) -> StageResult:
    """Select and write the training set of a claimed trigger, once the pipeline is known to be able to train on it."""
    require_runnable(context.spec, context.view.spec)
    return _training_set(context, select_training_set(context))


def model_stage(
    context: TriggerContext,
    progress: ProgressCallback | None = None,
    fast_path: FastPath = FastPath(),  # noqa: B008 - frozen
) -> StageResult | None:
    """Train and commit the model of a claimed trigger; None when it was skipped because nothing was selected."""
    with context.platform.transaction() as conn:
        training_set = find_training_set(conn, context.trigger.id)
    if training_set is None:
        raise RunError(f"trigger {context.trigger.partition_key} has no training set yet; materialize it first")
    model = train_model(context, training_set, progress, fast_path)
    return None if model is None else _model(context, model)


def evaluation_stage(context: TriggerContext, *, finished: bool, progress: EvaluationProgress | None = None) -> StageResult:
    """Judge the model of a trained trigger on the context's view."""
    cells, changed = evaluate_model(context, finished=finished, progress=progress)
    return replace(_evaluation(context, cells), fresh=changed)


def recorded_stages(context: TriggerContext) -> list[StageResult]:
    """What the catalog says of a trigger, without doing anything: for events that a kill swallowed."""
    with context.platform.transaction() as conn:
        training_set = find_training_set(conn, context.trigger.id)
        model = find_model(conn, context.trigger.id)
        cells = list_evaluations(conn, context.run.id, context.trigger.id)
    results = []
    if training_set is not None and training_set.removed_at is None:
        results.append(_training_set(context, training_set))
    if model is not None:
        results.append(_model(context, model))
    if cells:
        results.append(_evaluation(context, cells))
    return [replace(result, fresh=False) for result in results]


def _training_set(context: TriggerContext, row: TrainingSetRow) -> StageResult:
    training_set = open_training_set(context, row)
    leakage = only_train_samples(context.view, training_set)
    found = [training_set_not_empty(row), leakage, *training_set_checks(row, training_set)]
    return StageResult("training_set", context, row, found)


def _model(context: TriggerContext, row: ModelRow) -> StageResult:
    store = context.platform.models_of(context.spec)
    return StageResult("model", context, row, [checks.loss_finite(row), stored_exactly(store, row)])


def _evaluation(context: TriggerContext, cells: list[EvaluationRow]) -> StageResult:
    enough = checks.enough_evaluation_samples(context.spec.evaluation, cells)
    return StageResult("evaluation", context, cells, [enough, checks.champion(_verdict(context))])


def _verdict(context: TriggerContext) -> Verdict:
    with context.platform.transaction() as conn:
        models = [model.ordinal for model in list_models(conn, context.run.id)]
        cells = list_evaluations(conn, context.run.id)
    verdicts = champions(models, cells, context.spec.evaluation.score_metric)
    return next(verdict for verdict in verdicts if verdict.trigger == context.trigger.ordinal)


def finish_evaluations(platform: Platform, run: RunRow, view: DatasetView) -> Iterator[StageResult]:
    """Judge every model of a run on all its intervals up to the end of a view, the open last one included."""
    if spec_of(run).evaluation.matrix == "lazy":
        return
    with platform.transaction() as conn:
        trained = list_triggers(conn, run.id, ["trained"])
    for trigger in trained:
        yield evaluation_stage(trigger_context(platform, run, trigger, view), finished=True)


def finish_run(platform: Platform, run_id: int) -> RunRow:
    """Mark a run as finished."""
    with platform.transaction() as conn:
        run = get_run(conn, run_id, lock=True)
        if run.state == "finished":
            return run
        left = unfinished_trigger(conn, run_id)
        if left is not None:
            raise RunError(f"{run.title} still has to train trigger {left.partition_key}; let it end first")
        return move_run(conn, run, state="finished", finished_at=sa.func.now())


def finish_live_run(platform: Platform, run: RunRow) -> Iterator[StageResult]:
    """End a live run for good: finish it, then judge its models on everything it has seen."""
    finished = finish_run(platform, run.id)
    view = platform.view(spec_of(run).dataset, until=finished.last_ordinal)
    yield from finish_evaluations(platform, finished, view)
