"""The cost ledger: seconds and bytes per stage."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sa

from modyn_dagster.catalog.tables import stage_timing

Stage = Literal["select", "train", "save", "evaluate", "decide", "measure"]


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall seconds one stage took, and how many samples (deciding and measuring: points) it worked on.

    ``batch_ordinal`` is the batch it was about, where it was not about a trigger; ``n_bytes`` what it wrote to disk.
    """

    stage: Stage
    seconds: float
    n_samples: int | None = None
    batch_ordinal: int | None = None
    n_bytes: int | None = None


def record_timing(conn: sa.Connection, run_id: int, trigger_id: int | None, attempt: int | None, timing: Timing) -> None:
    """Add to the ledger, in the transaction that commits the stage's result."""
    conn.execute(
        sa.insert(stage_timing).values(
            run_id=run_id,
            trigger_id=trigger_id,
            attempt=attempt,
            stage=timing.stage,
            seconds=timing.seconds,
            n_samples=timing.n_samples,
            batch_ordinal=timing.batch_ordinal,
            n_bytes=timing.n_bytes,
        )
    )


def seconds_by_stage(conn: sa.Connection, run_id: int, trigger_id: int | None = None) -> Mapping[str, float]:
    """Seconds of a run, or of one of its triggers, summed by stage."""
    where = stage_timing.c.run_id == run_id
    if trigger_id is not None:
        where &= stage_timing.c.trigger_id == trigger_id
    statement = sa.select(stage_timing.c.stage, sa.func.sum(stage_timing.c.seconds)).where(where)
    return {stage: float(seconds) for stage, seconds in conn.execute(statement.group_by(stage_timing.c.stage))}


def seconds_by_trigger(conn: sa.Connection, run_id: int) -> Mapping[tuple[int | None, str], float]:
    """Seconds of a run summed by trigger and stage; the trigger is None for what was about none."""
    columns = stage_timing.c.trigger_id, stage_timing.c.stage
    statement = sa.select(*columns, sa.func.sum(stage_timing.c.seconds)).where(stage_timing.c.run_id == run_id)
    return {(trigger_id, stage): float(s) for trigger_id, stage, s in conn.execute(statement.group_by(*columns))}


def bytes_by_trigger(conn: sa.Connection, run_id: int) -> Mapping[tuple[int | None, str], int]:
    """Bytes that a run wrote, summed by trigger and stage; the trigger is None for what was about none."""
    columns = stage_timing.c.trigger_id, stage_timing.c.stage
    where = (stage_timing.c.run_id == run_id) & stage_timing.c.n_bytes.is_not(None)
    statement = sa.select(*columns, sa.func.sum(stage_timing.c.n_bytes)).where(where)
    return {(trigger_id, stage): int(n) for trigger_id, stage, n in conn.execute(statement.group_by(*columns))}
