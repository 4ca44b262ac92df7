"""Fire at every n-th sample."""

from collections.abc import Mapping
from typing import Any

from modyn_dagster.keys import ORIGIN
from modyn_dagster.triggering.measurement import Measurement
from modyn_dagster.triggering.policy import Decision, State, TriggeringPolicy
from modyn_dagster.triggering.stream.training_stream import Stream


class AmountPolicy(TriggeringPolicy):
    """Fires at sample ``every``, ``2 * every``, … of the training stream (Modyn, SIGMOD 2025, §5.1)."""

    def __init__(self, every: int) -> None:
        self.every = every
        self._last = ORIGIN
        self._score = float(every)
        self._reason = f"{every} samples"

    def __repr__(self) -> str:
        return f"AmountPolicy(every={self.every})"

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """The ``every``-th sample after the last one counted to; the cursor may lie anywhere between."""
        return stream.nth_after(self._last, self.every)

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        """Always fires: the point is where the count is full."""
        self._last = point
        return Decision(True, point, self._reason, self._score, self._score)

    def state_dict(self) -> State:
        """The key counted to."""
        return {"last": self._last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the key counted to."""
        self._last = int(state.get("last", ORIGIN))
