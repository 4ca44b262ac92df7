"""Decision loop of a policy, shared by replays, production, measuring runs, simulations and warm-ups."""

from collections.abc import Callable, Iterator

from modyn_dagster.triggering.measurement import Measurement, MeasurementSpec
from modyn_dagster.triggering.policy import Decision, TriggeringPolicy
from modyn_dagster.triggering.stream.training_stream import Stream


class MeasurementPending(Exception):
    """A measurement that a policy needs at ``point`` is not recorded yet, and the driver may not measure."""

    def __init__(self, point: int) -> None:
        super().__init__(f"nothing is measured at key {point} yet")
        self.point = point


#: Answers the needs of a policy at a point: measures them, looks them up, or raises ``MeasurementPending``.
Measure = Callable[[int, MeasurementSpec], Measurement]


def drive_policy(
    policy: TriggeringPolicy, cursor: int, stream: Stream, measure: Measure, *, until: int | None = None
) -> Iterator[tuple[int, Decision, MeasurementSpec, Measurement | None]]:
    """Yield point, decision, needs and measurement for every point after ``cursor``, up to ``until`` or the end of the data.

    The policy's ``triggered`` has been called for a decision that fires. The caller then calls ``model_trained``, or stops.

    Raises:
        MeasurementPending: from ``measure``; the decisions before it hold.
    """
    # A simulation has millions of points, so names are looked up once.
    next_point, needs_of, decide = policy.next_point, policy.needs, policy.decide
    hears_triggers = policy.hears("triggered")
    while (point := next_point(cursor, stream)) is not None and (until is None or point <= until):
        needs = needs_of(point)
        measurement = measure(point, needs) if needs else None
        decision = decide(point, measurement)
        if decision.fire and hears_triggers:
            policy.triggered(decision.key)
        yield point, decision, needs, measurement
        cursor = point
