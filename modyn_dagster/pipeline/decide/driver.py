"""State machine that replay and production share: decide until a decision fires, the data end, or a measurement is missing.

Every step is one transaction that compares and sets the run's cursor and epoch, so two drivers cannot both take it. It
commits the decisions with their evidence: trigger, decision rows, measurements and the cost ledger.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from time import monotonic
from typing import Final

import sqlalchemy as sa

from modyn_dagster.catalog.database.mapping import as_timestamp
from modyn_dagster.catalog.decisions import DecisionRow, record_decisions, record_measurements
from modyn_dagster.catalog.runs import RunRow, move_run
from modyn_dagster.catalog.timings import Stage, Timing, record_timing
from modyn_dagster.catalog.triggers import TriggerRow, insert_trigger
from modyn_dagster.json_values import json_number, json_values_of
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.measure.measurement_rows import measurement_row
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.triggering import Stream
from modyn_dagster.triggering.build import pipeline_policy
from modyn_dagster.triggering.loop import Measure, MeasurementPending, PointDecision, drive_policy


def record_decided(conn: sa.Connection, run: RunRow, decided: Sequence[PointDecision], stream: Stream, *, measured: bool) -> None:
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


def decision_row(run: RunRow, each: PointDecision, stream: Stream) -> DecisionRow:
    """A decision as it is, or would be, recorded."""
    decision = each.decision
    return DecisionRow(
        run_id=run.id,
        point=each.point,
        key=decision.key,
        time=as_timestamp(stream.time(each.point)),
        fire=decision.fire,
        reason=decision.reason,
        score=json_number(decision.score),
        threshold=json_number(decision.threshold),
        details=json_values_of(decision.details),
    )


def timings_by_batch(stage: Stage, seconds_at: Mapping[int, float]) -> list[Timing]:
    """Seconds by point to seconds by batch."""
    by_batch: dict[int, list[float]] = {}
    for point, seconds in seconds_at.items():
        by_batch.setdefault(ordinal_of(point), []).append(seconds)
    return [Timing(stage, sum(seconds), len(seconds), ordinal) for ordinal, seconds in by_batch.items()]


#: Decisions that did not fire are committed together: at most this many, and after at most so many seconds.
_MOST_POINTS: Final = 10_000
COMMIT_SECONDS: Final = 5.0


class Stop(Enum):
    """Why a step went no further."""

    FIRED = "a decision fired"
    AT_END = "the data ended"
    UNMEASURED = "nothing is measured at the next point yet"
    PAUSED = "there is more to decide"


@dataclass(frozen=True, slots=True)
class Step:
    """Where the run stands now, why it stopped there, and the trigger that just fired.

    ``point`` is the one at which something has to be measured first.
    """

    run: RunRow
    stop: Stop
    trigger: TriggerRow | None = None
    point: int | None = None


def advance(
    platform: Platform,
    run: RunRow,
    stream: Stream,
    measure: Measure,
    *,
    seconds: float = COMMIT_SECONDS,
    measures: bool = True,
    until: int | None = None,
) -> Step:
    """Decide about the stream after the run's cursor, up to and including the first decision that fires, or up to a key.

    It pauses, with all decisions so far committed, after ``seconds``; at least one decision is taken before. ``measures``
    says that ``measure`` does, and what it found is committed too.

    Raises:
        StaleRun: another process moved the run meanwhile; nothing was committed.
    """
    policy = pipeline_policy(platform.spec_of(run))
    policy.load_state_dict(run.policy_state)
    end, decided, point = monotonic() + seconds, list[PointDecision](), None
    stop = Stop.AT_END
    try:
        for each in drive_policy(policy, run.cursor, stream, measure, until=until):
            decided.append(each)
            if each.decision.fire:
                stop = Stop.FIRED
            elif monotonic() > end or len(decided) == _MOST_POINTS:
                stop = Stop.PAUSED
                break
    except MeasurementPending as unmeasured:
        stop, point = Stop.UNMEASURED, unmeasured.point
    # At the end of the data a policy may have learnt something, such as the time its ticks count from.
    state = policy.state_dict() if stop is Stop.AT_END else decided[-1].state if decided else run.policy_state
    if not decided and state == run.policy_state:
        return Step(run, stop, None, point)
    moved = {"cursor": decided[-1].point if decided else run.cursor, "policy_state": state}
    with platform.transaction() as conn:
        before, run = run, move_run(conn, run, **moved)
        record_decided(conn, before, decided, stream, measured=measures)
        trigger = _trigger_of(conn, run, decided)
    return Step(run, stop, trigger, point)


def _trigger_of(conn: sa.Connection, run: RunRow, decided: Sequence[PointDecision]) -> TriggerRow | None:
    if not decided or not decided[-1].decision.fire:
        return None
    decision = decided[-1].decision
    shown = {"reason": decision.reason, "score": json_number(decision.score), "threshold": json_number(decision.threshold)}
    return insert_trigger(conn, run.id, key=decision.key, point=run.cursor, **shown)
