"""Two-sample Kolmogorov-Smirnov statistic, all columns at once."""

import numpy as np
import numpy.typing as npt

from modyn_dagster.triggering.drift.univariate.ranked_columns import Ranked
from modyn_dagster.triggering.drift.windows import Float64


def kolmogorov_smirnov(ranked: Ranked, in_reference: npt.NDArray[np.bool_]) -> Float64:
    """Largest distance of the two distribution functions, ``float64[...]`` in [0, 1].

    Source: Smirnov, Bulletin of Moscow University 1939. The statistic is invariant to monotone maps of a column and equals that
    of ``scipy.stats.ks_2samp``.

    Args:
        ranked: pooled values of the columns.
        in_reference: bool ``[..., N]``, True where a value is of the reference.

    >>> from modyn_dagster.triggering.drift.univariate.ranked_columns import observed
    >>> from modyn_dagster.triggering.drift.windows import Windows
    >>> observed(kolmogorov_smirnov, Windows(np.array([[0.0], [1.0]]), np.array([[0.5], [2.0]])))
    array([0.5])
    """
    distances = np.abs(ranked.differences(ranked.counts(in_reference)))
    return np.asarray(np.where(ranked.last, distances, 0.0).max(axis=-1))


def kolmogorov_smirnov_p_values(statistics: Float64, n: int, m: int) -> Float64:
    """Asymptotic p-values of ``scipy.stats.ks_2samp(..., method="asymp")``, ``float64[d]`` (Hodges, Arkiv för Matematik 1958)."""
    from scipy.stats import kstwo

    larger, smaller = sorted((float(n), float(m)), reverse=True)
    return np.asarray(np.clip(kstwo.sf(statistics, np.round(larger * smaller / (larger + smaller))), 0.0, 1.0))
