"""The cost ledger: seconds and bytes per stage."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import sqlalchemy as sa

from modyn_dagster.catalog.database.mapping import BigInt, column_values, created_column, table

Stage = Literal["select", "train", "save", "evaluate", "decide", "measure", "promote"]


@dataclass(frozen=True, slots=True)
class Timing:
    """Cost of one stage, as a row of ``stage_timing``.

    Attributes:
        seconds: wall time.
        n_samples: samples it worked on; points for deciding and measuring.
        batch_ordinal: batch of a stage that belongs to no trigger (deciding, measuring).
        n_bytes: bytes it wrote to disk.
    """

    stage: Stage
    seconds: float
    n_samples: BigInt | None = None
    batch_ordinal: int | None = None
    n_bytes: BigInt | None = None


stage_timing: Final = table(
    "stage_timing",
    Timing,
    sa.Column("run_id", sa.Integer, sa.ForeignKey("pipeline_run.id"), nullable=False),
    sa.Column("trigger_id", sa.Integer, sa.ForeignKey("trigger.id")),
    sa.Column("attempt", sa.Integer),
    created_column(),
    sa.Index("ix_stage_timing_run_id_trigger_id", "run_id", "trigger_id"),
)


def record_timing(conn: sa.Connection, run_id: int, trigger_id: int | None, attempt: int | None, timing: Timing) -> None:
    """Add to the ledger, in the transaction that commits the stage's result."""
    owner = {"run_id": run_id, "trigger_id": trigger_id, "attempt": attempt}
    conn.execute(sa.insert(stage_timing).values(owner | column_values(timing)))


def seconds_by_stage(conn: sa.Connection, run_id: int, trigger_id: int | None = None) -> Mapping[str, float]:
    """Seconds of a run, or of one of its triggers, summed by stage."""
    where = stage_timing.c.run_id == run_id
    if trigger_id is not None:
        where &= stage_timing.c.trigger_id == trigger_id
    statement = sa.select(stage_timing.c.stage, sa.func.sum(stage_timing.c.seconds)).where(where)
    return {stage: float(seconds) for stage, seconds in conn.execute(statement.group_by(stage_timing.c.stage))}


def seconds_by_trigger(conn: sa.Connection, run_id: int) -> Mapping[tuple[int | None, str], float]:
    """Seconds of a run summed by trigger and stage; the trigger is None for stages without one."""
    columns = stage_timing.c.trigger_id, stage_timing.c.stage
    statement = sa.select(*columns, sa.func.sum(stage_timing.c.seconds)).where(stage_timing.c.run_id == run_id)
    return {(trigger_id, stage): float(s) for trigger_id, stage, s in conn.execute(statement.group_by(*columns))}


@dataclass(frozen=True, slots=True)
class Predicted:
    """Predictions of a trigger by the ledger: number of samples, and seconds."""

    n_samples: int
    seconds: float


def predicted_by_trigger(conn: sa.Connection, run_ids: Collection[int]) -> Mapping[int, Predicted]:
    """Predictions of the triggers of some runs; triggers that made none are left out."""
    columns, n_samples = stage_timing.c, sa.func.sum(stage_timing.c.n_samples)
    where = columns.run_id.in_(run_ids) & (columns.stage == "evaluate") & columns.trigger_id.is_not(None)
    statement = sa.select(columns.trigger_id, n_samples, sa.func.sum(columns.seconds)).where(where)
    rows = conn.execute(statement.group_by(columns.trigger_id).having(n_samples > 0))
    return {int(trigger_id): Predicted(int(n), float(seconds)) for trigger_id, n, seconds in rows}


def prediction_timings(conn: sa.Connection, trigger_id: int) -> list[tuple[float, int]]:
    """Seconds and samples of every prediction of a trigger's model by the ledger."""
    columns = stage_timing.c
    where = (columns.trigger_id == trigger_id) & (columns.stage == "evaluate") & (columns.n_samples > 0)
    rows = conn.execute(sa.select(columns.seconds, columns.n_samples).where(where))
    return [(float(seconds), int(n)) for seconds, n in rows]


def bytes_by_trigger(conn: sa.Connection, run_id: int) -> Mapping[tuple[int | None, str], int]:
    """Bytes a run wrote, summed by trigger and stage; the trigger is None for stages without one."""
    columns = stage_timing.c.trigger_id, stage_timing.c.stage
    where = (stage_timing.c.run_id == run_id) & stage_timing.c.n_bytes.is_not(None)
    statement = sa.select(*columns, sa.func.sum(stage_timing.c.n_bytes)).where(where)
    return {(trigger_id, stage): int(n) for trigger_id, stage, n in conn.execute(statement.group_by(*columns))}
