"""Scores of drift metrics, p-values by permutation, and their correction for many columns.

A metric takes a matrix with one column per split and gives one statistic per split, so that all permutations cost one matrix
product instead of one pass each.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

import numpy as np
import numpy.typing as npt

from modyn_dagster.triggering.drift.windows import Float64


@dataclass(frozen=True, slots=True)
class Score:
    """Score of one metric.

    Attributes:
        value: the statistic; None where it is undefined.
        p_value: by permutation or as the metric defines it; None where it is undefined or was not computed.
        details: JSON values of its computation: bandwidth, per-column extremes, or the reason for a missing value.
    """

    value: float | None
    p_value: float | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Statistic, p-value and details as one JSON object."""
        return {"statistic": self.value, "p_value": self.p_value, **self.details}

    @classmethod
    def undefined(cls, why: str) -> Self:
        """Score without a value, with the reason."""
        return cls(None, None, {"why": why})


def restored(statistic: float, exponent: int) -> float:
    """Statistic times ``2**exponent``. ``ArithmeticError`` where the product overflows or vanishes.

    >>> restored(0.75, 2)
    3.0
    """
    value = math.ldexp(statistic, exponent)
    if value == 0.0 and statistic != 0.0:
        raise FloatingPointError("the statistic is smaller than any number")
    return value


Correction = Literal["bonferroni", "holm", "fdr"]


def smallest_corrected(p_values: Float64, correction: Correction) -> float:
    """Smallest of ``float64[d]`` p-values after correction, at most 1.

    A value at or below alpha means that some column drifts, with false alarms in at most a share alpha of cases. Bonferroni and
    Holm (Scandinavian Journal of Statistics 1979), whose smallest values are the same, hold for any dependence of columns; fdr
    (Benjamini & Hochberg, JRSS B 1995), whose smallest value is the p-value of Simes' test, for independent or positively
    dependent columns.

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

#: Relative difference below which statistics are equal: rounding must not decide a test.
_ROUNDING: Final = 1e-6


def split_indicators(n_reference: int, n_current: int, permutations: int, rng: np.random.Generator) -> Indicators:
    """``uint8[n_reference + n_current, 1 + permutations]``: 1 where a pooled sample belongs to the reference.

    Column 0 is the actual split, reference first; every other column is a random split of the same sizes.
    """
    rows = np.zeros((1 + permutations, n_reference + n_current), dtype=np.uint8)
    rows[:, :n_reference] = 1
    rows[1:] = rng.permuted(rows[1:], axis=1)
    return np.ascontiguousarray(rows.T)


def permutation_p_value(statistics: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Share of splits at least as extreme as the first one, itself included: never 0, and valid at any level.

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
