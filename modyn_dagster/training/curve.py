"""The losses of a training, in bounded space."""

import math
from typing import Any, Final

#: Points of a recorded loss curve, however many steps there were.
MAX_POINTS: Final = 1000


class LossCurve:
    """Mean loss per epoch (weighted by the samples' weights) and per stretch of equally many steps.

    >>> curve = LossCurve(n_steps=2)
    >>> curve.step(1.0, weight=3.0); curve.step(5.0, weight=1.0); curve.end_epoch()
    >>> curve.epochs, curve.points
    ([2.0], [(1, 1.0), (2, 5.0)])
    """

    def __init__(self, n_steps: int) -> None:
        self.epochs: list[float] = []
        self.points: list[tuple[int, float]] = []
        self._stretch = max(1, math.ceil(n_steps / MAX_POINTS))
        self.n_steps, self.n_seen = n_steps, 0
        self._open: list[float] = []
        self._weighted = self._weights = 0.0

    def step(self, loss: float, *, weight: float) -> None:
        """The loss of the next step and the sum of its samples' weights."""
        self.n_seen += 1
        self._weighted += loss * weight
        self._weights += weight
        self._open.append(loss)
        if len(self._open) == self._stretch or self.n_seen == self.n_steps:
            self.close()

    def close(self) -> None:
        """End the stretch that is open, if there is one."""
        if self._open:
            self.points.append((self.n_seen, math.fsum(self._open) / len(self._open)))
            self._open.clear()

    def end_epoch(self) -> None:
        """Close the epoch: its mean loss is final. One without a step leaves no trace."""
        if self._weights:
            self.epochs.append(self._weighted / self._weights)
        self._weighted = self._weights = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Everything so far."""
        open_ = {"open": self._open, "weighted": self._weighted, "weights": self._weights}
        return {"epochs": self.epochs, "points": self.points, "n_seen": self.n_seen} | open_

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another one was."""
        self.epochs, self.points, self.n_seen = state["epochs"], state["points"], state["n_seen"]
        self._open, self._weighted, self._weights = state["open"], state["weighted"], state["weights"]
