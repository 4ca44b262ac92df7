"""Seconds per stage of a loop."""

import time
from collections import defaultdict
from typing import Any


class Stopwatch:
    """Adds the time since the last lap to the stage that just ended.

    Work on a GPU is counted where the host waits for it: with the loss of each step, in ``forward``.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """A stage has ended now."""
        now = time.perf_counter()
        self.seconds[stage] += now - self._last
        self._last = now

    def state_dict(self) -> dict[str, Any]:
        """The seconds so far."""
        return {"seconds": dict(self.seconds)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Add the seconds of another one."""
        for stage, seconds in state["seconds"].items():
            self.seconds[stage] += seconds
