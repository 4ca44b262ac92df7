"""Telemetry of a training: its loss curve, and seconds by stage and epoch."""

import math
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

#: Points of a recorded loss curve, however many steps there were.
MAX_POINTS: Final = 1000


class LossCurve:
    """Mean loss per epoch (weighted by the samples' weights) and per group of equally many steps.

    >>> curve = LossCurve(n_steps=2)
    >>> curve.step(1.0, weight=3.0); curve.step(5.0, weight=1.0); curve.end_epoch()
    >>> curve.epochs, curve.points
    ([2.0], [(1, 1.0), (2, 5.0)])
    """

    def __init__(self, n_steps: int) -> None:
        self.epochs: list[float] = []
        self.points: list[tuple[int, float]] = []
        self._steps_per_point = max(1, math.ceil(n_steps / MAX_POINTS))
        self.n_steps, self.n_seen = n_steps, 0
        self._pending: list[float] = []
        self._weighted = self._weights = 0.0

    def step(self, loss: float, *, weight: float) -> None:
        """Add the loss of a step and the sum of its samples' weights."""
        self.n_seen += 1
        self._weighted += loss * weight
        self._weights += weight
        self._pending.append(loss)
        if len(self._pending) == self._steps_per_point or self.n_seen == self.n_steps:
            self.close()

    def close(self) -> None:
        """Close an incomplete group of steps."""
        if self._pending:
            self.points.append((self.n_seen, math.fsum(self._pending) / len(self._pending)))
            self._pending.clear()

    def end_epoch(self) -> None:
        """End an epoch and record its mean loss, if it had a step."""
        if self._weights:
            self.epochs.append(self._weighted / self._weights)
        self._weighted = self._weights = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return the curve so far."""
        open_ = {"open": self._pending, "weighted": self._weighted, "weights": self._weights}
        return {"epochs": self.epochs, "points": self.points, "n_seen": self.n_seen} | open_

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.epochs, self.points, self.n_seen = state["epochs"], state["points"], state["n_seen"]
        self._pending, self._weighted, self._weights = state["open"], state["weighted"], state["weights"]


#: Stages of a step, in order.
STEP_STAGES: Final = ("data", "to_device", "select", "forward", "backward", "step", "calibrate")


class Stopwatch:
    """Stopwatch of stages. A lap adds the time since the previous lap to the stage that ended.

    Work on a GPU is counted where the host waits for it: with the loss of each step, in ``forward``.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.epochs: list[dict[str, Any]] = []
        self._before: dict[str, float] = {}
        self._last = time.perf_counter()
        self._cpu_before, self._cpu_start = 0.0, time.process_time()

    def lap(self, stage: str) -> None:
        """End a stage."""
        now = time.perf_counter()
        self.seconds[stage] += now - self._last
        self._last = now

    def end_epoch(self, n_samples: int) -> None:
        """End an epoch of ``n_samples``; record its seconds per stage, and processor time and memory of the process."""
        seconds = {stage: self.seconds[stage] - self._before.get(stage, 0.0) for stage in STEP_STAGES if stage in self.seconds}
        load = {"cpu_seconds": self._cpu_seconds(), "memory_bytes": _resident_bytes()}
        self.epochs.append({"n_samples": n_samples, "seconds": seconds, **load})
        self._before = dict(self.seconds)
        self._cpu_before, self._cpu_start = 0.0, time.process_time()

    def state_dict(self) -> dict[str, Any]:
        """Return the seconds so far."""
        return {"seconds": dict(self.seconds), "epochs": self.epochs, "before": self._before, "cpu": self._cpu_seconds()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Add the seconds of a state."""
        for stage, seconds in state["seconds"].items():
            self.seconds[stage] += seconds
        self.epochs, self._before = state["epochs"], state["before"]
        self._cpu_before, self._cpu_start = state.get("cpu", 0.0), time.process_time()

    def _cpu_seconds(self) -> float:
        """Processor seconds of all threads of the process in this epoch, before a kill included."""
        return self._cpu_before + time.process_time() - self._cpu_start


def _resident_bytes() -> int:
    """Memory of the process that is not swapped out."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
