"""State machine that replay and production share: decide until a decision fires, the data end, or a measurement is missing.

Every step is one transaction that compares and sets the run's cursor and epoch, so two drivers cannot both take it. It
commits the decisions with their evidence: trigger, decision rows, measurements and the cost ledger.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from time import monotonic, perf_counter
from typing import Final

import sqlalchemy as sa

from modyn_dagster.catalog.database.mapping import as_timestamp
from modyn_dagster.catalog.decisions import DecisionRow, record_decisions, record_measurements
from modyn_dagster.catalog.runs import RunRow, move_run
from modyn_dagster.catalog.timings import Stage, Timing, record_timing
from modyn_dagster.catalog.triggers import TriggerRow, insert_trigger
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.measure.measurement_rows import measurement_row
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.triggering import Decision, Measurement, MeasurementSpec, Stream, TriggeringPolicy
from modyn_dagster.triggering.build import pipeline_policy
from modyn_dagster.triggering.loop import Measure, MeasurementPending, drive_policy
from modyn_dagster.triggering.policy import State
from modyn_dagster.values.json_values import json_number, json_values_of


@dataclass(frozen=True, slots=True)
class PointDecision:
    """Decision at one point, with its evidence.

    Attributes:
        point: key of the point.
        decision: the policy's decision.
        needs: needs of the policy at the point.
        measurement: their answers; None where there are no needs.
        state: state of the policy afterwards.
        seconds: seconds of deciding, without measuring.
        measuring: seconds of measuring.
    """

    point: int
    decision: Decision
    needs: MeasurementSpec
    measurement: Measurement | None
    state: State
    seconds: float
    measuring: float


def decisions_until_fire(
    policy: TriggeringPolicy, cursor: int, stream: Stream, measure: Measure, *, until: int | None = None
) -> Iterator[PointDecision]:
    """Drive a policy up to and including the first decision that fires, and time its points."""
    measuring = 0.0

    def timed(point: int, needs: MeasurementSpec) -> Measurement:
        nonlocal measuring
        begin = perf_counter()
        measurement = measure(point, needs)
        measuring = perf_counter() - begin
        return measurement

    begin = perf_counter()
    for point, decision, needs, measurement in drive_policy(policy, cursor, stream, timed, until=until):
        state = policy.state_dict()
        yield PointDecision(point, decision, needs, measurement, state, perf_counter() - begin - measuring, measuring)
        if decision.fire:
            return
        begin, measuring = perf_counter(), 0.0


def decision_row(run: RunRow, decided: PointDecision, stream: Stream) -> DecisionRow:
    """Return the catalog row of a decision."""
    decision = decided.decision
    return DecisionRow(
        run_id=run.id,
        point=decided.point,
        key=decision.key,
        time=as_timestamp(stream.time(decided.point)),
        fire=decision.fire,
        reason=decision.reason,
        score=json_number(decision.score),
        threshold=json_number(decision.threshold),
        details=json_values_of(decision.details),
    )


def timings_by_batch(stage: Stage, seconds_at: Mapping[int, float]) -> list[Timing]:
    """Sum seconds by point to timings by batch."""
    by_batch: dict[int, list[float]] = {}
    for point, seconds in seconds_at.items():
        by_batch.setdefault(ordinal_of(point), []).append(seconds)
    return [Timing(stage, sum(seconds), len(seconds), ordinal) for ordinal, seconds in by_batch.items()]


#: Decisions that do not fire are committed in groups: this many at most, and after at most so many seconds.
_MOST_POINTS: Final = 10_000
COMMIT_SECONDS: Final = 5.0


class Stop(Enum):
    """Reason why a step ended."""

    FIRED = "a decision fired"
    AT_END = "the data ended"
    UNMEASURED = "a measurement is missing at the next point"
    PAUSED = "there is more to decide"


@dataclass(frozen=True, slots=True)
class Step:
    """Result of a step.

    Attributes:
        run: the run afterwards.
        stop: reason why the step ended.
        trigger: the trigger that has just fired.
        point: the point with a missing measurement.
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
    """Decide after the run's cursor, up to and including the first decision that fires, or up to the key ``until``.

    It pauses, with all decisions so far committed, after ``seconds``, but takes at least one decision. With ``measures`` the
    answers of ``measure`` are committed too; otherwise they are recorded already.

    Raises:
        StaleRun: another process moved the run meanwhile; nothing was committed.
    """
    policy = pipeline_policy(platform.recorded_spec(run))
    policy.load_state_dict(run.policy_state)
    end, decisions, point = monotonic() + seconds, list[PointDecision](), None
    stop = Stop.AT_END
    try:
        for decided in decisions_until_fire(policy, run.cursor, stream, measure, until=until):
            decisions.append(decided)
            if decided.decision.fire:
                stop = Stop.FIRED
            elif monotonic() > end or len(decisions) == _MOST_POINTS:
                stop = Stop.PAUSED
                break
    except MeasurementPending as pending:
        stop, point = Stop.UNMEASURED, pending.point
    # At the end of the data a policy may have new state, such as the time that its ticks count from.
    state = policy.state_dict() if stop is Stop.AT_END else decisions[-1].state if decisions else run.policy_state
    if not decisions and state == run.policy_state:
        return Step(run, stop, None, point)
    cursor = decisions[-1].point if decisions else run.cursor
    # A replay may have walked further than its row says, over batches at which nothing happened.
    moved = {"cursor": cursor, "policy_state": state, "last_ordinal": run.last_ordinal}
    with platform.transaction() as conn:
        before, run = run, move_run(conn, run, **moved)
        _record(conn, before, decisions, stream, measured=measures)
        trigger = _insert_trigger(conn, run, decisions[-1].decision) if stop is Stop.FIRED else None
    return Step(run, stop, trigger, point)


def advance_while_paused(
    platform: Platform,
    run: RunRow,
    stream: Stream,
    measure: Measure,
    *,
    seconds: float = inf,
    measures: bool = True,
    until: int | None = None,
) -> Step:
    """Advance in steps of ``COMMIT_SECONDS`` until one ends for another reason than a pause, or for about ``seconds``."""
    end = monotonic() + seconds
    step = advance(platform, run, stream, measure, seconds=min(seconds, COMMIT_SECONDS), measures=measures, until=until)
    while step.stop is Stop.PAUSED and (remaining := end - monotonic()) > 0:
        pause = min(remaining, COMMIT_SECONDS)
        step = advance(platform, step.run, stream, measure, seconds=pause, measures=measures, until=until)
    return step


def _record(conn: sa.Connection, run: RunRow, decisions: Sequence[PointDecision], stream: Stream, *, measured: bool) -> None:
    """Write decision rows, timings and, where the driver measured, the measurements; ``run`` is the row before the step."""
    record_decisions(conn, [decision_row(run, decided, stream) for decided in decisions])
    timings = timings_by_batch("decide", {decided.point: decided.seconds for decided in decisions})
    if measured:
        rows = [measurement_row(run, d.point, d.needs, d.measurement) for d in decisions if d.measurement]
        record_measurements(conn, rows)
        timings += timings_by_batch("measure", {decided.point: decided.measuring for decided in decisions if decided.needs})
    for timing in timings:
        record_timing(conn, run.id, None, None, timing)


def _insert_trigger(conn: sa.Connection, run: RunRow, decision: Decision) -> TriggerRow:
    return insert_trigger(
        conn,
        run.id,
        key=decision.key,
        point=run.cursor,
        reason=decision.reason,
        score=json_number(decision.score),
        threshold=json_number(decision.threshold),
    )
