"""The losses of a training, in bounded space."""

import math
from typing import Final

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
        self.n_steps, self._step = n_steps, 0
        self._open: list[float] = []
        self._weighted = self._weights = 0.0

    def step(self, loss: float, *, weight: float) -> None:
        """The loss of the next step and the sum of its samples' weights."""
        self._step += 1
        self._weighted += loss * weight
        self._weights += weight
        self._open.append(loss)
        if len(self._open) == self._stretch or self._step == self.n_steps:
            self.close()

    def close(self) -> None:
        """End the stretch that is open, if there is one."""
        if self._open:
            self.points.append((self._step, math.fsum(self._open) / len(self._open)))
            self._open.clear()

    def end_epoch(self) -> None:
        """Close the epoch: its mean loss is final."""
        self.epochs.append(self._weighted / self._weights)
        self._weighted = self._weights = 0.0
