"""At most so many triggers."""

from collections.abc import Mapping
from typing import Any

from modyn_dagster.triggering.policy import Decision, ModelTrained, State, TriggeringPolicy
from modyn_dagster.triggering.stream import Stream


class LimitedPolicy(TriggeringPolicy):
    """Another policy until it has fired ``max_triggers`` times; then there is nothing more to decide."""

    def __init__(self, policy: TriggeringPolicy, max_triggers: int) -> None:
        self.policy = policy
        self.max_triggers = max_triggers
        self._fired = 0

    def __repr__(self) -> str:
        return f"LimitedPolicy({self.policy!r}, max_triggers={self.max_triggers})"

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """The other policy's, while triggers are left."""
        return self.policy.next_point(cursor, stream) if self._fired < self.max_triggers else None

    def decide(self, point: int) -> Decision:
        """The other policy's; a decision to fire is counted."""
        decision = self.policy.decide(point)
        self._fired += decision.fire
        return decision

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
