"""What a transition commits beside the run's new cursor: its decisions, what was measured for them, and what they took."""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from modyn_dagster.catalog.decisions import DecisionRow, record_decisions
from modyn_dagster.catalog.measurements import record_measurements
from modyn_dagster.catalog.moments import as_timestamp
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.timings import Stage, Timing, record_timing
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.deciding import Decided
from modyn_dagster.pipeline.plain import plain_number, plain_values
from modyn_dagster.pipeline.recorded import measurement_row
from modyn_dagster.triggering import Stream


def record_decided(conn: sa.Connection, run: RunRow, decided: Sequence[Decided], stream: Stream, *, measured: bool) -> None:
    """Write decision rows and the ledger of a transition, in its transaction; ``run`` is as it was before.

    ``measured``: the driver measured too, so that goes with it; otherwise it was recorded when it was measured.
    """
    record_decisions(conn, [decision_row(run, each, stream) for each in decided])
    timings = timings_by_batch("decide", {each.point: each.seconds for each in decided})
    if measured:
        rows = [measurement_row(run, each.point, each.needs, each.measurement) for each in decided if each.measurement]
        record_measurements(conn, rows)
        timings += timings_by_batch("measure", {each.point: each.measuring for each in decided if each.needs})
    for timing in timings:
        record_timing(conn, run.id, None, None, timing)


def decision_row(run: RunRow, each: Decided, stream: Stream) -> DecisionRow:
    """A decision as it is, or would be, recorded."""
    decision = each.decision
    return DecisionRow(
        run_id=run.id,
        point=each.point,
        key=decision.key,
        time=as_timestamp(stream.time(each.point)),
        fire=decision.fire,
        reason=decision.reason,
        score=plain_number(decision.score),
        threshold=plain_number(decision.threshold),
        details=plain_values(decision.details),
    )


def timings_by_batch(stage: Stage, seconds_at: Mapping[int, float]) -> list[Timing]:
    """Seconds by point to seconds by batch."""
    by_batch: dict[int, list[float]] = {}
    for point, seconds in seconds_at.items():
        by_batch.setdefault(ordinal_of(point), []).append(seconds)
    return [Timing(stage, sum(seconds), len(seconds), ordinal) for ordinal, seconds in by_batch.items()]
