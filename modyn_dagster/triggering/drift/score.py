"""Scores of drift metrics, p-values by permutation, and their correction for many columns.

A metric takes an indicator matrix of splits and answers one statistic per column, so that all permutations cost one matrix
product instead of one pass each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Score:
    """One metric's answer.

    Attributes:
        value: the statistic; None where it is undefined.
        p_value: by permutation or as the metric defines it; None where it was not asked for or is undefined.
        details: JSON values that show how it came about: bandwidth, per-column extremes, or why there is no value.
    """

    value: float | None
    p_value: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Statistic, p-value and details as one JSON object."""
        return {"statistic": self.value, "p_value": self.p_value, **self.details}

    @classmethod
    def undefined(cls, why: str) -> Self:
        """No value, and the reason."""
        return cls(None, None, {"why": why})


Correction = Literal["bonferroni", "holm", "fdr"]


def smallest_corrected(p_values: Float64, correction: Correction) -> float:
    """The smallest of ``float64[d]`` p-values after correction, at most 1.

    At or below alpha it says that some column drifts, with false alarms in at most a share alpha of cases: whatever the
    dependence of columns for Bonferroni and Holm, whose smallest values are the same, and for independent or positively
    dependent columns for fdr (Benjamini & Hochberg; its smallest value is the p-value of Simes' test).

    >>> p_values = np.array([0.01, 0.02, 0.5])
    >>> round(smallest_corrected(p_values, "bonferroni"), 6), round(smallest_corrected(p_values, "fdr"), 6)
    (0.03, 0.03)
    """
    ordered = np.sort(p_values)
    count = len(ordered)
    if correction == "fdr":
        return float(min(1.0, (ordered * count / np.arange(1, count + 1)).min()))
    return float(min(1.0, ordered[0] * count))


Indicators = npt.NDArray[np.uint8]

#: Statistics that differ by less than rounding does are equal: a permutation that changes nothing must not decide a test.
_ROUNDING: Final = 1e-6


def indicators(n_reference: int, n_current: int, permutations: int, rng: np.random.Generator) -> Indicators:
    """``uint8[n_reference + n_current, 1 + permutations]``: 1 where a pooled sample belongs to the reference.

    Column 0 is the split as it is, reference first; every other column is a random split of the same sizes.
    """
    rows = np.zeros((1 + permutations, n_reference + n_current), dtype=np.uint8)
    rows[:, :n_reference] = 1
    rows[1:] = rng.permuted(rows[1:], axis=1)
    return np.ascontiguousarray(rows.T)


def permutation_p_value(statistics: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The share of splits at least as extreme as the first, which counts itself: never 0, and valid at any level.

    Args:
        statistics: ``float[..., 1 + permutations]``, larger is more extreme.

    Returns:
        ``float64[...]``, at least ``1 / (1 + permutations)`` (Phipson & Smyth, SAGMB 2010).

    >>> float(permutation_p_value([3.0, 1.0, 2.0, 5.0]))
    0.5
    """
    scores = np.asarray(statistics, dtype=np.float64)
    observed = scores[..., :1]
    tolerance = _ROUNDING * np.abs(scores).max(axis=-1, keepdims=True)
    return np.asarray((scores >= observed - tolerance).mean(axis=-1))
