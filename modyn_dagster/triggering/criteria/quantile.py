"""Quantile criteria: compare a score with a quantile of the last scores (AutoDrift)."""

from math import floor

import numpy as np
import numpy.typing as npt

from modyn_dagster.spec.triggers.decision import Direction
from modyn_dagster.triggering.criteria.criterion import Verdict, WindowCriterion, compared


class DynamicQuantile(WindowCriterion):
    """Fires strictly above the linear ``1 - quantile`` quantile of the last scores (Modyn, SIGMOD 2025, §5.1: AutoDrift).

    With direction lower the criterion fires strictly below the ``quantile`` quantile. On exchangeable scores it fires in a larger
    share of decisions than ``quantile``, about .098 for 15 scores and quantile .05; ``CalibratedQuantile`` does not.

    Args:
        window: number of scores.
        quantile: share of scores beyond the threshold.
        direction: side on which scores fire.

    >>> criterion = DynamicQuantile(3, 0.25, "higher")
    >>> [criterion.judge("mmd", score).fire for score in (1.0, 2.0, 3.0, 2.4, 2.6, 2.9)]
    [False, False, False, False, False, True]
    """

    def __init__(self, window: int, quantile: float, direction: Direction) -> None:
        super().__init__(window)
        self.quantile = quantile
        self.direction = direction

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.window}, {self.quantile}, {self.direction!r})"

    def judge_by(self, earlier: npt.NDArray[np.float64], name: str, score: float) -> Verdict:
        """Compare a score with the threshold from those before it."""
        threshold = self.threshold(earlier)
        if self.direction == "higher":
            fire, sign = score > threshold, (">", "<=")
        else:
            fire, sign = score < threshold, ("<", ">=")
        text = compared(name, score, sign[not fire], threshold)
        return Verdict(fire, f"{text} ({self.meaning()} of the last {self.window} scores)", score, threshold)

    def threshold(self, earlier: npt.NDArray[np.float64]) -> float:
        """Threshold that a firing score lies strictly beyond."""
        return float(np.quantile(earlier, self._level()))

    def meaning(self) -> str:
        """Meaning of the threshold, for people."""
        return f"quantile {self._level():g}"

    def _level(self) -> float:
        return 1 - self.quantile if self.direction == "higher" else self.quantile


class CalibratedQuantile(DynamicQuantile):
    """Fires when the rank of a score among the last scores and itself is at most ``quantile * (window + 1)``.

    Rank 1 is the most extreme one, and ties count against firing. On exchangeable scores every rank is equally likely, so that
    the criterion fires in at most a share ``quantile`` of decisions, and in exactly that share where scores do not tie and
    ``quantile * (window + 1)`` is whole. This is conformal prediction (Vovk, Gammerman & Shafer, Algorithmic Learning in a Random
    World, 2005).

    Args:
        window: number of scores.
        quantile: largest share of decisions that fire.
        direction: side on which scores fire.

    >>> criterion = CalibratedQuantile(3, 0.25, "higher")
    >>> [criterion.judge("mmd", score).fire for score in (1.0, 2.0, 3.0, 2.9, 3.1)]
    [False, False, False, False, True]
    """

    def __init__(self, window: int, quantile: float, direction: Direction) -> None:
        super().__init__(window, quantile, direction)
        # A product like 100 * 0.29 falls just short of the whole number it stands for.
        self.rank = floor(quantile * (window + 1) + 1e-9)

    def threshold(self, earlier: npt.NDArray[np.float64]) -> float:
        """The ``rank``-th most extreme of the earlier scores."""
        ascending = np.sort(earlier)
        return float(ascending[-self.rank] if self.direction == "higher" else ascending[self.rank - 1])

    def meaning(self) -> str:
        """Meaning of the threshold, for people."""
        return f"number {self.rank} {'from the top' if self.direction == 'higher' else 'from the bottom'}"
