"""Two-sample Cramér-von Mises statistic, all columns at once."""

from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.triggering.drift.univariate.ranked_columns import Ranked
from modyn_dagster.triggering.drift.windows import Float64

#: Standardized values below the first have a p-value of 1 to seven digits, those above the second one below 1e-20.
_LEAST: Final = 0.003
_MOST: Final = 10.0
_TERMS: Final = 30


def cramer_von_mises(ranked: Ranked, in_reference: npt.NDArray[np.bool_]) -> Float64:
    """Anderson's T with middle ranks for equal values, ``float64[...]`` (Anderson, Annals of Mathematical Statistics 1962).

    The statistic is invariant to monotone maps of a column and equals that of ``scipy.stats.cramervonmises_2samp``.

    Args:
        ranked: pooled values of the columns.
        in_reference: bool ``[..., N]``, True where a value is of the reference.

    >>> from modyn_dagster.triggering.drift.univariate.ranked_columns import observed
    >>> from modyn_dagster.triggering.drift.windows import Windows
    >>> observed(cramer_von_mises, Windows(np.array([[0.0], [1.0]]), np.array([[2.0], [3.0]]))).round(3)
    array([0.375])
    """
    n, m = ranked.n, ranked.m
    counts = ranked.counts(in_reference)
    others = np.arange(1, n + m + 1, dtype=np.int32) - counts
    own = np.where(in_reference, counts, others)
    weights = np.where(in_reference, float(n), float(m))
    u = (weights * np.square(ranked.middle_ranks - own)).sum(axis=-1)
    return np.asarray(u / (n * m * (n + m)) - (4 * n * m - 1) / (6 * (n + m)))


def cramer_von_mises_p_values(statistics: Float64, n: int, m: int) -> Float64:
    """Asymptotic p-values of ``scipy.stats.cramervonmises_2samp(..., method="asymptotic")``, ``float64[d]``."""
    total, product = n + m, n * m
    mean = (1 + 1 / total) / 6
    variance = (total + 1) * (4 * product * total - 3 * (n**2 + m**2) - 2 * product) / (45 * total**2 * 4 * product)
    standardized = 1 / 6 + (statistics - mean) / np.sqrt(45 * variance)
    usable = np.clip(standardized, _LEAST, _MOST)
    return np.where(standardized < _LEAST, 1.0, np.clip(1 - _limit_distribution(usable), 0.0, 1.0))


def _limit_distribution(x: Float64) -> Float64:
    """P(W² <= x) in the limit of large samples (Csörgő & Faraway, JRSS B 1996, eq. 1.3)."""
    from scipy.special import gammaln, kve

    k = np.arange(_TERMS)
    y = 4.0 * k + 1
    q = y**2 / (16 * np.asarray(x)[..., None])
    # kve is e^q times the Bessel function, so that -2q remains of the exponent.
    terms = np.exp(gammaln(k + 0.5) - gammaln(k + 1) - 2 * q) * np.sqrt(y) * kve(0.25, q)
    return np.asarray(terms.sum(axis=-1) / (np.pi**1.5 * np.sqrt(x)))
