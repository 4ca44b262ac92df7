"""Rolling-mean criterion: compare a score with the mean of the last scores."""

import numpy as np
import numpy.typing as npt

from modyn_dagster.spec.triggers.decision import Direction
from modyn_dagster.triggering.criteria.criterion import Verdict, WindowCriterion, compared


class RollingMean(WindowCriterion):
    """Fires when a score lies ``deviation`` or more above the mean of the last scores; with direction lower, below it.

    The rule is that of a control chart with a moving baseline (Shewhart, 1931).

    Args:
        window: number of scores.
        deviation: distance from the mean, or share of its absolute value.
        direction: side on which scores fire.
        relative: deviation is a share. Around a mean of zero every score beyond the mean fires.

    >>> criterion = RollingMean(2, 0.5, "higher", relative=False)
    >>> [criterion.judge("mae", score).fire for score in (1.0, 2.0, 1.9, 2.5)]
    [False, False, False, True]
    """

    def __init__(self, window: int, deviation: float, direction: Direction, *, relative: bool) -> None:
        super().__init__(window)
        self.deviation = deviation
        self.direction = direction
        self.relative = relative

    def __repr__(self) -> str:
        return f"RollingMean({self.window}, {self.deviation}, {self.direction!r}, relative={self.relative})"

    def judge_by(self, earlier: npt.NDArray[np.float64], name: str, score: float) -> Verdict:
        """Compare a score with the mean moved by the deviation."""
        mean = float(earlier.mean())
        allowed = self.deviation * (abs(mean) if self.relative else 1.0)
        higher = self.direction == "higher"
        threshold = mean + allowed if higher else mean - allowed
        fire = (score >= threshold if higher else score <= threshold) and score != mean
        reason = compared(name, score, _sign(fire, higher, allowed == 0), threshold)
        share = f"{self.deviation:.4g} times " if self.relative else f"{self.deviation:.4g} "
        beyond = f"{share}{'above' if higher else 'below'} the mean {mean:.4g} of the last {self.window}"
        return Verdict(fire, f"{reason} ({beyond})", score, threshold)


def _sign(fire: bool, higher: bool, strict: bool) -> str:
    """Sign between a score and its threshold."""
    sign = ">" if fire == higher else "<"
    return sign if fire == strict else f"{sign}="
