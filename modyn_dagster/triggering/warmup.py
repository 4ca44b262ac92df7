"""Another policy decides while there is too little to go by."""

from collections.abc import Mapping
from typing import Any

from modyn_dagster.keys import ORIGIN
from modyn_dagster.triggering.policy import State, TriggeringPolicy
from modyn_dagster.triggering.stream import Stream


class Warmup:
    """A policy that decides during the first ``intervals`` points of another one.

    It is driven as if it were on its own, at all of its own points up to a point of the other policy, and fires there if it
    fired at any of them; its ``max_triggers`` counts its own fires.
    """

    def __init__(self, intervals: int, policy: TriggeringPolicy) -> None:
        self.intervals = intervals
        self.policy = policy
        self._cursor = ORIGIN

    def __repr__(self) -> str:
        return f"Warmup({self.intervals}, {self.policy!r})"

    def fires(self, point: int, stream: Stream) -> str | None:
        """The reason of its last fire after its last point and up to this one; None where it stays quiet."""
        reason = None
        cursor = max(self._cursor, stream.origin)
        while (own := self.policy.next_point(cursor, stream)) is not None and own <= point:
            decision = self.policy.decide(own)
            if decision.fire:
                self.policy.triggered(decision.key)
                reason = decision.reason
            cursor = own
        self._cursor = cursor
        return reason

    def state_dict(self) -> State:
        """Its place and the policy's state."""
        return {"cursor": self._cursor, "policy": self.policy.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up both."""
        self._cursor = int(state.get("cursor", ORIGIN))
        self.policy.load_state_dict(state.get("policy", {}))
