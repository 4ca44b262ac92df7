"""Decision loop of a policy, shared by replay, production and measuring runs: decide point after point until one fires."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter

from modyn_dagster.triggering.measurement import Measurement, MeasurementSpec
from modyn_dagster.triggering.policy import Decision, State, TriggeringPolicy
from modyn_dagster.triggering.stream.training_stream import Stream


class MeasurementPending(Exception):
    """What a policy needs at ``point`` has not been measured yet, and whoever drives it may not measure."""

    def __init__(self, point: int) -> None:
        super().__init__(f"nothing is measured at key {point} yet")
        self.point = point


@dataclass(frozen=True, slots=True)
class PointDecision:
    """What became of one point.

    Attributes:
        point: its key.
        decision: of the policy; one that fires is the last.
        needs: what the policy asked for, and
        measurement: the answer; None where it asked for nothing.
        state: of the policy afterwards.
        seconds: of deciding, measuring not included.
        measuring: seconds of measuring.
    """

    point: int
    decision: Decision
    needs: MeasurementSpec
    measurement: Measurement | None
    state: State
    seconds: float
    measuring: float


#: Answers what a policy needs at a point: measures it, looks it up, or raises ``Unmeasured``.
Measure = Callable[[int, MeasurementSpec], Measurement]


def drive_policy(
    policy: TriggeringPolicy, cursor: int, stream: Stream, measure: Measure, *, until: int | None = None
) -> Iterator[PointDecision]:
    """Every decision after ``cursor``, up to and including the first one that fires, or until the data (or ``until``) end.

    The policy moves on as it is asked; a decision that fires has been told to it by ``triggered``.

    Raises:
        Unmeasured: what ``measure`` says; the decisions before it hold.
    """
    while True:
        begin = perf_counter()
        point = policy.next_point(cursor, stream)
        if point is None or (until is not None and point > until):
            return
        needs = policy.needs(point)
        asked = perf_counter()
        measurement = measure(point, needs) if needs else None
        answered = perf_counter()
        decision = policy.decide(point, measurement)
        if decision.fire:
            policy.triggered(decision.key)
        state = policy.state_dict()
        seconds = perf_counter() - answered + asked - begin
        yield PointDecision(point, decision, needs, measurement, state, seconds, answered - asked if needs else 0.0)
        if decision.fire:
            return
        cursor = point
