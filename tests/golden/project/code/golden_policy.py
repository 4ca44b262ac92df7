"""A triggering policy of the golden project's own."""

from collections.abc import Mapping
from typing import Any

from modyn_dagster.triggering import Decision, Measurement, Stream, TriggeringPolicy


class Widening(TriggeringPolicy):
    """Fire at every ``first``-th sample, then at every so many more after each trigger."""

    def __init__(self, first: int, more: int) -> None:
        self.first = first
        self.more = more
        self._made = 0

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """Name the sample that completes the stretch."""
        return stream.nth_after(cursor, self.first + self.more * self._made)

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        """Fire at all but every fourth point."""
        self._made += 1
        return Decision(self._made % 4 != 0, point, f"stretch {self._made}", float(self._made), 4.0)

    def state_dict(self) -> dict[str, Any]:
        """Count the points."""
        return {"made": self._made}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with the count."""
        self._made = int(state.get("made", 0))
