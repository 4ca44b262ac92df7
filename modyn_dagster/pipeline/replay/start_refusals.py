"""Replays that a live run cannot begin with, refused with the remedy."""

from collections.abc import Sequence

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.training_sets import list_training_sets
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.triggers import WITHDRAWN, TriggerRow, list_triggers
from modyn_dagster.errors import RunError
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.spec.load import changed_fields, spec_hash
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.selection import is_usage_aware


def require_replay_of(platform: Platform, spec: PipelineSpec, run: RunRow) -> None:
    """Raise ``RunError`` unless a run is a finished replay of a pipeline as its file is today."""
    status = f"`modyn-dagster pipeline status {spec.name}` names the replays of {spec.name}"
    if run.pipeline != spec.name:
        raise RunError(f"{run.title} is a run of another pipeline; {status}")
    if run.mode != "replay":
        raise RunError(f"{run.title} is no replay; {status}")
    if run.spec_hash != spec_hash(spec):
        changed = ", ".join(changed_fields(platform.recorded_spec(run), spec)) or "a default"
        remedy = "replay it as it is now, or put the file back"
        raise RunError(f"{run.title} has another spec than the file of {spec.name} ({changed}); {remedy}")
    if run.state == "waiting":
        remedy = f"`modyn-dagster pipeline resume {spec.name} --run {run.id}` and launch the replay again to finish it"
        raise RunError(f"{run.title} stopped at a failed trigger; {remedy}")
    if run.state == "ended":
        raise RunError(f"{run.title} was begun anew as a later replay, after a deletion; {status}")
    if run.state != "finished":
        raise RunError(
            f"{run.title} is not finished; launch it again and let it end: `modyn-dagster pipeline replay {spec.name}`"
        )


def require_no_live_run(current: RunRow | None) -> None:
    """Raise ``RunError`` where a pipeline's newest live run is open."""
    if current is not None and current.is_open:
        remedy = f"end it first: `modyn-dagster pipeline finish {current.pipeline}`"
        raise RunError(f"{current.title} is {current.state}, and a pipeline has one live run at a time; {remedy}")


def require_history(conn: sa.Connection, platform: Platform, run: RunRow) -> Sequence[TriggerRow]:
    """Return the triggers of a replay. Raises ``RunError`` where something is gone that later triggers start from."""
    again = f"replay it once more: `modyn-dagster pipeline replay {run.pipeline} --restart`"
    triggers = list_triggers(conn, run.id)
    withdrawn = [each for each in triggers if each.state == "skipped" and (each.error or "").startswith(WITHDRAWN)]
    if withdrawn:
        raise RunError(f"{run.title}: a deletion has withdrawn the model of trigger {withdrawn[0].partition_key}; {again}")
    models = list_models(conn, run.id)
    if models and models[-1].removed_at is not None:
        raise RunError(f"{run.title}: retention has removed its newest model, {models[-1].hash}; {again}")
    if any(map(is_usage_aware, platform.spec_of(run).selection.strategies)):
        ordinals = {each.id: each.partition_key for each in triggers}
        gone = [ordinals[row.trigger_id] for row in list_training_sets(conn, run.id) if row.removed_at is not None]
        if gone:
            rule = "the selection strategy has to know what was used"
            raise RunError(f"{run.title}: retention has removed the training set of trigger {gone[0]}, and {rule}; {again}")
    return triggers


def require_holes_of(conn: sa.Connection, platform: Platform, run: RunRow, live: RunRow | None) -> None:
    """Raise ``RunError`` where a replay counts deleted samples that are holes of the live run before."""
    holes = None if live is None else platform.holes_of(conn, live)
    if holes is None or live is None:
        return
    own = platform.holes_of(conn, run)
    counted = np.setdiff1d(holes.keys, own.keys if own is not None else np.empty(0, np.uint64))
    if len(counted):
        remedy = f"replay it without them: `modyn-dagster pipeline replay {run.pipeline} --as-if-deleted`"
        raise RunError(f"{run.title} counts {len(counted)} deleted samples that are holes of {live.title}; {remedy}")
