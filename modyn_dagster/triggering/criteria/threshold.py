"""Threshold criteria: compare a score or a p-value with a fixed number."""

from modyn_dagster.spec.triggers.decision import Direction
from modyn_dagster.triggering.criteria.criterion import Criterion, Verdict, compared


class FixedThreshold(Criterion):
    """Fires at ``score >= value``; with direction lower at ``score <= value``.

    Args:
        value: the threshold.
        direction: side on which scores fire.

    >>> FixedThreshold(0.05, "higher").judge("mmd", 0.081).reason
    'mmd 0.081 >= 0.05'
    """

    def __init__(self, value: float, direction: Direction) -> None:
        self.value = value
        self.direction = direction

    def __repr__(self) -> str:
        return f"FixedThreshold({self.value}, {self.direction!r})"

    def judge_defined(self, name: str, score: float) -> Verdict:
        """Compare a score with the threshold."""
        if self.direction == "higher":
            fire, sign = score >= self.value, (">=", "<")
        else:
            fire, sign = score <= self.value, ("<=", ">")
        return Verdict(fire, compared(name, score, sign[not fire], self.value), score, self.value)


class PValueThreshold(Criterion):
    """Fires at ``p <= alpha``: without drift in at most a share ``alpha`` of decisions (Fisher, 1925).

    Args:
        alpha: level of the test.

    >>> PValueThreshold(0.05).judge("ks", 0.2).reason
    'ks p 0.2 > 0.05'
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def __repr__(self) -> str:
        return f"PValueThreshold({self.alpha})"

    def judge_defined(self, name: str, score: float) -> Verdict:
        """Compare a p-value with the level."""
        fire = score <= self.alpha
        return Verdict(fire, compared(f"{name} p", score, "<=" if fire else ">", self.alpha), score, self.alpha)
