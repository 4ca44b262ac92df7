"""Compare with the mean of the last scores."""

import numpy as np
import numpy.typing as npt

from modyn_dagster.spec.triggers.decision import Direction
from modyn_dagster.triggering.criteria.criterion import RecentScores, Verdict, compared


class RollingMean(RecentScores):
    """Fires when a score lies ``deviation`` or more above the mean of the last scores; with direction lower below it.

    With ``relative`` the deviation is a share of the mean's absolute value. Around a mean of zero, where there is no such
    share, any score beyond it fires.
    """

    def __init__(self, window: int, deviation: float, direction: Direction, *, relative: bool) -> None:
        super().__init__(window)
        self.deviation = deviation
        self.direction = direction
        self.relative = relative

    def __repr__(self) -> str:
        return f"RollingMean({self.window}, {self.deviation}, {self.direction!r}, relative={self.relative})"

    def judge_by(self, before: npt.NDArray[np.float64], name: str, score: float) -> Verdict:
        """Compare with the mean moved by the deviation."""
        mean = float(before.mean())
        allowed = self.deviation * (abs(mean) if self.relative else 1.0)
        higher = self.direction == "higher"
        threshold = mean + allowed if higher else mean - allowed
        fire = (score >= threshold if higher else score <= threshold) and score != mean
        reason = compared(name, score, _sign(fire, higher, allowed == 0), threshold)
        share = f"{self.deviation:.4g} times " if self.relative else f"{self.deviation:.4g} "
        beyond = f"{share}{'above' if higher else 'below'} the mean {mean:.4g} of the last {self.window}"
        return Verdict(fire, f"{reason} ({beyond})", score, threshold)


def _sign(fire: bool, higher: bool, strict: bool) -> str:
    """How a score compares with its threshold, in signs."""
    sign = ">" if fire == higher else "<"
    return sign if fire == strict else f"{sign}="
