"""AutoDrift: compare with a quantile of the last scores."""

from math import floor

import numpy as np
import numpy.typing as npt

from modyn_dagster.spec.triggers.decision import Direction
from modyn_dagster.triggering.criteria.criterion import RecentScores, Verdict, compared


class DynamicQuantile(RecentScores):
    """Fires strictly above the linear ``1 - quantile`` quantile of the last scores (Modyn, SIGMOD 2025, §5.1: AutoDrift).

    With direction lower: strictly below their ``quantile`` quantile. On exchangeable scores it fires more often than
    ``quantile`` says, in about .098 of decisions for 15 scores and quantile .05: see ``CalibratedQuantile``.
    """

    def __init__(self, window: int, quantile: float, direction: Direction) -> None:
        super().__init__(window)
        self.quantile = quantile
        self.direction = direction

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.window}, {self.quantile}, {self.direction!r})"

    def judge_by(self, before: npt.NDArray[np.float64], name: str, score: float) -> Verdict:
        """Compare with the threshold of the scores before."""
        threshold = self.threshold(before)
        if self.direction == "higher":
            fire, sign = score > threshold, (">", "<=")
        else:
            fire, sign = score < threshold, ("<", ">=")
        text = compared(name, score, sign[not fire], threshold)
        return Verdict(fire, f"{text} ({self.meaning()} of the last {self.window} scores)", score, threshold)

    def threshold(self, before: npt.NDArray[np.float64]) -> float:
        """What a score must go beyond."""
        return float(np.quantile(before, self._level()))

    def meaning(self) -> str:
        """What the threshold is, for people."""
        return f"quantile {self._level():g}"

    def _level(self) -> float:
        return 1 - self.quantile if self.direction == "higher" else self.quantile


class CalibratedQuantile(DynamicQuantile):
    """Fires when the rank of a score among itself and the last scores is at most ``quantile * (window + 1)``.

    Rank 1 is the most extreme one, and ties count against firing. On exchangeable scores every rank is equally likely, so
    it fires in at most a share ``quantile`` of decisions; where scores do not tie and ``quantile * (window + 1)`` is whole,
    in exactly that share. The threshold is the last score that a firing one must go strictly beyond.
    """

    def __init__(self, window: int, quantile: float, direction: Direction) -> None:
        super().__init__(window, quantile, direction)
        # A product like 100 * 0.29 falls just short of the whole number that it means.
        self.rank = floor(quantile * (window + 1) + 1e-9)

    def threshold(self, before: npt.NDArray[np.float64]) -> float:
        """The ``rank``-th most extreme of the scores before."""
        ascending = np.sort(before)
        return float(ascending[-self.rank] if self.direction == "higher" else ascending[self.rank - 1])

    def meaning(self) -> str:
        """What the threshold is, for people."""
        return f"number {self.rank} {'from the top' if self.direction == 'higher' else 'from the bottom'}"
