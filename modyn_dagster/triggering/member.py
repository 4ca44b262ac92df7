"""One policy inside an ensemble, driven at its own points."""

from collections.abc import Mapping
from typing import Any

from modyn_dagster.triggering.measurement import Measurement, MeasurementSpec
from modyn_dagster.triggering.policy import Decision, ModelTrained, State, TriggeringPolicy
from modyn_dagster.triggering.stream import Stream


class Member:
    """A policy that is asked at each of its own points, whatever the points of the others.

    Attributes:
        name: in the ensemble; the first part of the paths of what it needs.
        policy: the member itself.
        point: its next point; None while it has not arrived or has not been asked for.
        waiting: whether it was asked and the stream was too short: no need to ask again before the stream grows.
        measures: whether it may need something measured.
    """

    __slots__ = ("_cursor", "_decide", "_next_point", "measures", "name", "point", "policy", "waiting")

    def __init__(self, name: str, policy: TriggeringPolicy) -> None:
        self.name = name
        self.policy = policy
        self.point: int | None = None
        self.waiting = False
        self.measures = type(policy).needs is not TriggeringPolicy.needs
        self._cursor: int | None = None
        self._next_point, self._decide = policy.next_point, policy.decide

    def ask(self, cursor: int, stream: Stream) -> int | None:
        """Its next point after its own last one; ``cursor`` is where it begins."""
        if self._cursor is None:
            self._cursor = cursor
        self.point = point = self._next_point(self._cursor, stream)
        self.waiting = point is None
        return point

    def needs(self, point: int) -> MeasurementSpec:
        """What it needs, below its name."""
        return {f"{self.name}/{path}" if path else self.name: need for path, need in self.policy.needs(point).items()}

    def decide(self, point: int, measurement: Measurement | None) -> Decision:
        """Its decision at its point, from what was measured below its name."""
        self._cursor, self.point = point, None
        return self._decide(point, self._own(measurement) if measurement else None)

    def triggered(self, key: int) -> None:
        """It is told of a trigger; its next point may be another one now."""
        self.point, self.waiting = None, False
        self.policy.triggered(key)

    def model_trained(self, trained: ModelTrained) -> None:
        """It is told of a model; its next point may be another one now."""
        self.point, self.waiting = None, False
        self.policy.model_trained(trained)

    def state_dict(self) -> State:
        """Where it stands, and the policy's state."""
        return {"cursor": self._cursor, "policy": self.policy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up both."""
        self.point, self.waiting, self._cursor = None, False, state.get("cursor")
        self.policy.load_state_dict(state.get("policy", {}))

    def _own(self, measurement: Measurement) -> Measurement:
        below = f"{self.name}/"
        own = {path.removeprefix(below): answer for path, answer in measurement.items() if path.startswith(below)}
        return own | {"": measurement[self.name]} if self.name in measurement else own
