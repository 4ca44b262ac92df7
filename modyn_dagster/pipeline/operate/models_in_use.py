"""Models that pipelines still use: live ones, the newest ones of replays, champions, and candidates of gates."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import sqlalchemy as sa

from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.promotions import gate_of
from modyn_dagster.catalog.runs import RunRow, list_runs
from modyn_dagster.evaluation.composite.champion import champions
from modyn_dagster.evaluation.promotion.state import GateState
from modyn_dagster.pipeline.platform import Platform, recorded_spec


def models_in_use(platform: Platform, root: object | None = None) -> Mapping[str, list[str]]:
    """Uses of models for people, by model. ``root`` leaves out the pipelines whose models are in another store."""
    with platform.transaction() as conn:
        # Later runs replace earlier ones: what the newest production and the newest replay of a pipeline show is in use.
        newest = {(run.pipeline, run.mode): run for run in list_runs(conn)}
        uses: dict[str, list[str]] = defaultdict(list)
        for run in newest.values():
            if root is None or _is_stored_at(platform, run, root):
                for model, use in _shown_by(conn, run):
                    uses[model].append(use)
    return uses


def _is_stored_at(platform: Platform, run: RunRow, root: object) -> bool:
    asked = str(root)
    # The place may have changed since the run began.
    places = {str(platform.models_of(spec).root) for spec in (recorded_spec(run), platform.spec_of(run))}
    return asked in places or ("://" not in asked and Path(asked).resolve() in {Path(place).resolve() for place in places})


def gate_models(conn: sa.Connection, run: RunRow) -> list[tuple[str, str]]:
    """Models that the gate of a run needs, each with its use for people: the champion, those before it, and candidates.

    A rollback goes to a champion before, and a test predicts with its candidate. None where the spec has no ``promotion``.
    """
    if recorded_spec(run).promotion is None:
        return []
    state = GateState.of_json(gate_of(conn, run.id).state)
    models = {model.ordinal: model.hash for model in list_models(conn, run.id)}
    uses = [(each, f"a champion before, to which {run.title} can roll back") for each in state.former]
    uses += [(each.trigger, f"a candidate of {run.title} in the state {each.state}") for each in state.candidates]
    uses += [(each, f"a model that the gate of {run.title} has not looked at yet") for each in models if each > state.seen]
    if state.champion is not None:
        uses.append((state.champion, f"the champion of {run.title}, by its gate"))
    return [(models[ordinal], use) for ordinal, use in uses if ordinal in models]


def _shown_by(conn: sa.Connection, run: RunRow) -> list[tuple[str, str]]:
    models = list_models(conn, run.id)
    if not models:
        return []
    spec = recorded_spec(run)
    current = "the live model"
    if spec.live_model == "champion":
        current = "the newest model"
    if run.mode == "replay":
        current = "the newest model of the newest replay"
    current = f"{current} of pipeline {run.pipeline}"
    if spec.promotion is not None:
        return [(models[-1].hash, current), *gate_models(conn, run)]
    verdicts = champions([model.ordinal for model in models], list_evaluations(conn, run.id), spec.evaluation.score_metric)
    champion = next(row for row in models if row.ordinal == verdicts[-1].champion)
    return [(models[-1].hash, current), (champion.hash, f"the champion of run {run.id} of {run.pipeline}")]
