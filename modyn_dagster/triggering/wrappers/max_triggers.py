"""Max-triggers wrapper: at most so many triggers."""

from collections.abc import Mapping
from typing import Any

from modyn_dagster.triggering.policy import State, TriggeringPolicy
from modyn_dagster.triggering.stream.training_stream import Stream
from modyn_dagster.triggering.wrappers.wrapper import Wrapper


class MaxTriggersPolicy(Wrapper):
    """Ends decisions after ``max_triggers`` triggers, manual ones included.

    Args:
        policy: the policy inside.
        max_triggers: number of triggers.

    >>> from modyn_dagster.triggering import build_policy, simulate
    >>> policy = MaxTriggersPolicy(build_policy({"kind": "amount", "every": 2}), max_triggers=2)
    >>> [decision.index for decision in simulate(policy, range(10))]
    [1, 3]
    """

    def __init__(self, policy: TriggeringPolicy, max_triggers: int) -> None:
        super().__init__(policy)
        self.max_triggers = max_triggers
        self._fired = 0

    def __repr__(self) -> str:
        return f"MaxTriggersPolicy({self.policy!r}, max_triggers={self.max_triggers})"

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """Next point of the policy inside, while triggers remain."""
        return super().next_point(cursor, stream) if self._fired < self.max_triggers else None

    def refusal(self, key: int, stream: Stream) -> None:
        """No refusal: after the last trigger there is no point."""

    def triggered(self, key: int) -> None:
        """Count a trigger."""
        self._fired += 1
        super().triggered(key)

    def own_state(self) -> State:
        """Number of triggers."""
        return {"fired": self._fired}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Restore the number of triggers."""
        self._fired = int(state.get("fired", 0))
