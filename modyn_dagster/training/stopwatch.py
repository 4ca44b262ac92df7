"""Seconds per stage of a loop."""

import time
from collections import defaultdict
from typing import Any, Final

#: Stages of every step, in their order.
LOOP: Final = ("data", "to_device", "select", "forward", "backward", "step", "calibrate")


class Stopwatch:
    """Adds the time since the last lap to the stage that just ended.

    Work on a GPU is counted where the host waits for it: with the loss of each step, in ``forward``.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.epochs: list[dict[str, Any]] = []
        self._before: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """A stage has ended now."""
        now = time.perf_counter()
        self.seconds[stage] += now - self._last
        self._last = now

    def end_epoch(self, n_samples: int) -> None:
        """An epoch is over, in which so many samples were trained on: its own seconds of the loop's stages are final."""
        spent = {stage: self.seconds[stage] - self._before.get(stage, 0.0) for stage in LOOP if stage in self.seconds}
        self.epochs.append({"n_samples": n_samples, "seconds": spent})
        self._before = dict(self.seconds)

    def state_dict(self) -> dict[str, Any]:
        """The seconds so far."""
        return {"seconds": dict(self.seconds), "epochs": self.epochs, "before": self._before}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Add the seconds of another one."""
        for stage, seconds in state["seconds"].items():
            self.seconds[stage] += seconds
        self.epochs, self._before = state["epochs"], state["before"]
