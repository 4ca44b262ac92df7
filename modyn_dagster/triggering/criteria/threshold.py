"""Compare with a fixed number."""

from modyn_dagster.spec.triggers.decision import Direction
from modyn_dagster.triggering.criteria.criterion import Criterion, Verdict, compared


class FixedThreshold(Criterion):
    """Fires at ``score >= value``; with direction lower at ``score <= value``."""

    def __init__(self, value: float, direction: Direction) -> None:
        self.value = value
        self.direction = direction

    def __repr__(self) -> str:
        return f"FixedThreshold({self.value}, {self.direction!r})"

    def judge_defined(self, name: str, score: float) -> Verdict:
        """Compare."""
        if self.direction == "higher":
            fire, sign = score >= self.value, (">=", "<")
        else:
            fire, sign = score <= self.value, ("<=", ">")
        return Verdict(fire, compared(name, score, sign[not fire], self.value), score, self.value)


class PValueThreshold(Criterion):
    """Fires at ``p <= alpha``: on samples of one distribution at most in a share ``alpha`` of decisions."""

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def __repr__(self) -> str:
        return f"PValueThreshold({self.alpha})"

    def judge_defined(self, name: str, score: float) -> Verdict:
        """Compare a p-value."""
        fire = score <= self.alpha
        return Verdict(fire, compared(f"{name} p", score, "<=" if fire else ">", self.alpha), score, self.alpha)
