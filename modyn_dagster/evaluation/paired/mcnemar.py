"""McNemar's exact test of two classifiers: among the samples that one of them alone has right, the candidate wins more often.

The hypothesis is that each such sample, given all before, is won with a probability of at most one half. The wins are then
stochastically at most binomial, whatever depends on what. That is stronger than a mean difference of at most 0, which wins and
losses of changing probability may have on average: `confidence_sequence` tests that. One look costs one error probability, so
looks are counted and spend it.

Source: Q. McNemar, Note on the sampling error of the difference between correlated proportions or percentages, Psychometrika
1947.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.paired.spending import spent_alpha
from modyn_dagster.evaluation.paired.verdict import Bounds, PairedVerdict, judged, undecided


@dataclass(frozen=True, slots=True)
class DiscordantState:
    """Counts so far.

    Attributes:
        n: samples.
        wins: samples that the candidate alone has right.
        losses: samples that the incumbent alone has right.
        looks: verdicts so far.

    Examples
    --------
    >>> DiscordantState().updated(np.array([1.0, 0.0, -1.0, 1.0]))
    DiscordantState(n=4, wins=2, losses=1, looks=0)
    """

    n: int = 0
    wins: int = 0
    losses: int = 0
    looks: int = 0

    def updated(self, differences: npt.ArrayLike) -> Self:
        """Return the counts after more samples.

        Args:
            differences: of the losses 0 and 1 of the accuracy, incumbent less candidate: -1, 0 or 1, ``float64[n]``.
        """
        d = np.asarray(differences, np.float64)
        if not np.isin(d, (-1, 0, 1)).all():
            raise ConfigError("paired test", "metric", "a loss other than 0 and 1", "mcnemar tests the accuracy alone")
        wins, losses = (int(np.count_nonzero(d == sign)) for sign in (1, -1))
        return replace(self, n=self.n + len(d), wins=self.wins + wins, losses=self.losses + losses)

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values."""
        return asdict(self)

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` returned."""
        return cls(*(int(content[name]) for name in ("n", "wins", "losses", "looks")))


def mcnemar_p(wins: int, losses: int) -> float:
    """Probability of at least so many wins of ``wins + losses`` fair coins.

    >>> mcnemar_p(3, 0), mcnemar_p(0, 0)
    (0.125, 1.0)
    """
    from scipy.special import bdtrc

    return 1.0 if wins == 0 else float(bdtrc(wins - 1, wins + losses, 0.5))


def mcnemar_verdict(
    state: DiscordantState, *, alpha: float = 0.05, margin: float = 0.0, min_samples: int = 1
) -> tuple[PairedVerdict, DiscordantState]:
    """Verdict of the next look, and the state that has counted it.

    The k-th look spends ``alpha / (k (k + 1))``. Bounds of the difference are those of Clopper and Pearson for the share of wins,
    at this look's error probability, times the share of samples that differ. So ``better`` is said where the test rejects, and
    ``worse or equal`` where that of the incumbent does.

    Raises:
        ConfigError: a margin, which this test has none for.

    >>> verdict, state = mcnemar_verdict(DiscordantState(100, wins=12, losses=1))
    >>> verdict.result, state.looks
    ('better', 1)
    """
    if margin != 0:
        raise ConfigError("paired test", "margin", margin, "mcnemar tests against a margin of 0 alone; use confidence_sequence")
    looked = replace(state, looks=state.looks + 1)
    if state.n < max(1, min_samples):
        reason = f"{state.n:,} samples, at least {max(1, min_samples):,} are needed"
        return undecided(reason, state.n, margin=margin, confidence=1 - alpha), looked
    spent = spent_alpha(alpha, looked.looks)
    differing = state.wins + state.losses
    if differing == 0:
        reason = f"on {state.n:,} samples neither model alone is right about any"
        return undecided(reason, state.n, margin=margin, confidence=1 - alpha), looked
    lower, upper = _difference_bounds(state, spent)
    bounds = Bounds(lower, upper, *_difference_bounds(state, spent / 2))
    verdict = judged(state.n, (state.wins - state.losses) / state.n, bounds, margin=margin, confidence=1 - alpha)
    counts = f"; {state.wins:,} of {differing:,} differing predictions are right, p = {mcnemar_p(state.wins, state.losses):.3g}"
    return replace(verdict, reason=f"{verdict.reason}{counts} at look {looked.looks}"), looked


def _difference_bounds(state: DiscordantState, alpha: float) -> tuple[float, float]:
    """One-sided bounds of the difference, by those of the share of wins (Clopper and Pearson)."""
    from scipy.special import betaincinv

    wins, losses = state.wins, state.losses
    share = (wins + losses) / state.n
    lower = 0.0 if wins == 0 else float(betaincinv(wins, losses + 1, alpha))
    upper = 1.0 if losses == 0 else float(betaincinv(wins + 1, losses, 1 - alpha))
    return share * (2 * lower - 1), share * (2 * upper - 1)
