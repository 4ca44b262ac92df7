"""At most so many triggers."""

from collections.abc import Mapping
from typing import Any

from modyn_dagster.triggering.measurement import Measurement, MeasurementSpec
from modyn_dagster.triggering.policy import Decision, ModelTrained, State, TriggeringPolicy
from modyn_dagster.triggering.stream.training_stream import Stream


class MaxTriggersPolicy(TriggeringPolicy):
    """Another policy until there were ``max_triggers`` triggers; then there is nothing more to decide."""

    def __init__(self, policy: TriggeringPolicy, max_triggers: int) -> None:
        self.policy = policy
        self.max_triggers = max_triggers
        self._fired = 0

    def __repr__(self) -> str:
        return f"MaxTriggersPolicy({self.policy!r}, max_triggers={self.max_triggers})"

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """The other policy's, while triggers are left."""
        return self.policy.next_point(cursor, stream) if self._fired < self.max_triggers else None

    def needs(self, point: int) -> MeasurementSpec:
        """The other policy's."""
        return self.policy.needs(point)

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        """The other policy's."""
        return self.policy.decide(point, measurement)

    def triggered(self, key: int) -> None:
        """Counted, and passed on."""
        self._fired += 1
        self.policy.triggered(key)

    def model_trained(self, trained: ModelTrained) -> None:
        """Passed on."""
        self.policy.model_trained(trained)

    def state_dict(self) -> State:
        """The count and the other policy's state."""
        return {"fired": self._fired, "policy": self.policy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up both."""
        self._fired = int(state.get("fired", 0))
        self.policy.load_state_dict(state.get("policy", {}))
