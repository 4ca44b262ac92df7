"""Two-sample Cramér-von Mises statistic, all columns at once (Anderson, Annals of Mathematical Statistics 1962)."""

from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.triggering.drift.univariate.ranked_columns import Float64, Ranked

#: Standardized values below have a p-value of 1 to seven digits, those above one below 1e-20: the series need not reach them.
_LEAST: Final = 0.003
_MOST: Final = 10.0
_TERMS: Final = 30


def cramer_von_mises(ranked: Ranked, in_reference: npt.NDArray[np.bool_]) -> Float64:
    """Anderson's T, ``float64[...]``, with middle ranks for equal values; monotone maps do not change it."""
    n, m = ranked.n, ranked.m
    counts = ranked.counts(in_reference)
    others = np.arange(1, n + m + 1, dtype=np.int32) - counts
    ranks = _middle_ranks(ranked)
    own = np.where(in_reference, counts, others)
    weights = np.where(in_reference, float(n), float(m))
    u = (weights * np.square(ranks - own)).sum(axis=-1)
    return np.asarray(u / (n * m * (n + m)) - (4 * n * m - 1) / (6 * (n + m)))


def cramer_von_mises_p_values(statistics: Float64, n: int, m: int) -> Float64:
    """Asymptotic p-values, those of ``scipy.stats.cramervonmises_2samp(..., method="asymptotic")``, ``float64[d]``."""
    total, product = n + m, n * m
    mean = (1 + 1 / total) / 6
    variance = (total + 1) * (4 * product * total - 3 * (n**2 + m**2) - 2 * product) / (45 * total**2 * 4 * product)
    standardized = 1 / 6 + (statistics - mean) / np.sqrt(45 * variance)
    usable = np.clip(standardized, _LEAST, _MOST)
    return np.where(standardized < _LEAST, 1.0, np.clip(1 - _limit_distribution(usable), 0.0, 1.0))


def _limit_distribution(x: Float64) -> Float64:
    """P(W² <= x) for samples without end (Csörgő & Faraway, JRSS B 1996, eq. 1.3)."""
    from scipy.special import gammaln, kve

    k = np.arange(_TERMS)
    y = 4.0 * k + 1
    q = y**2 / (16 * np.asarray(x)[..., None])
    # kve is e^q times the Bessel function: what is left of the exponent is -2q.
    terms = np.exp(gammaln(k + 0.5) - gammaln(k + 1) - 2 * q) * np.sqrt(y) * kve(0.25, q)
    return np.asarray(terms.sum(axis=-1) / (np.pi**1.5 * np.sqrt(x)))


def _middle_ranks(ranked: Ranked) -> Float64:
    """Ranks from 1, ``float64[c, N]``; equal values share the middle of theirs."""
    places = np.arange(1, ranked.n + ranked.m + 1, dtype=np.float64)
    first = np.ones_like(ranked.last)
    first[:, 1:] = ranked.last[:, :-1]
    lowest = np.maximum.accumulate(np.where(first, places, 0.0), axis=-1)
    highest = np.minimum.accumulate(np.where(ranked.last, places, np.inf)[:, ::-1], axis=-1)[:, ::-1]
    return np.asarray((lowest + highest) / 2)
