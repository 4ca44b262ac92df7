"""The seconds of a training that triggering policies are told: measured, or recorded by another run."""

from typing import Final

import sqlalchemy as sa

from modyn_dagster.catalog.models import ModelRow, list_models
from modyn_dagster.catalog.timings import seconds_by_stage
from modyn_dagster.errors import RunError
from modyn_dagster.pipeline.context import TriggerContext

#: What a policy is told: selecting and training, over all attempts. Evaluating costs the same whenever one trains.
_TOLD: Final = ("select", "train", "save")


def recorded_seconds(context: TriggerContext) -> float | None:
    """Seconds that the run named by ``costs_from`` was told for the same trigger; None where no run is named.

    The same trigger is the one with the same key, else the one with the same ordinal.

    Raises ``RunError`` where that run has neither: the replay's decisions would depend on this machine after all.
    """
    source = context.run.options.get("costs_from")
    if source is None:
        return None
    with context.platform.transaction() as conn:
        models = list_models(conn, int(source))
        trigger = context.trigger
        found = next((model for model in models if model.key == trigger.key), None)
        found = found or next((model for model in models if model.ordinal == trigger.ordinal), None)
        if found is None:
            raise RunError(
                f"trigger {trigger.partition_key}: run {source} (costs_from) trained no model at key {trigger.key} and has no "
                f"trigger {trigger.ordinal}; replay no further than it went, or begin a replay without costs_from"
            )
        return _told(conn, found)


def measured_seconds(conn: sa.Connection, run_id: int, trigger_id: int) -> float:
    """What the ledger says of selecting and training a trigger."""
    seconds = seconds_by_stage(conn, run_id, trigger_id)
    return sum(seconds.get(stage, 0.0) for stage in _TOLD)


def _told(conn: sa.Connection, model: ModelRow) -> float:
    # Models of before 0.2 do not say what their policies were told.
    return measured_seconds(conn, model.run_id, model.trigger_id) if model.seconds is None else model.seconds
