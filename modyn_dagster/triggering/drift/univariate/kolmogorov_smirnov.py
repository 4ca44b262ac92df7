"""Two-sample Kolmogorov-Smirnov statistic, all columns at once."""

import numpy as np
import numpy.typing as npt

from modyn_dagster.triggering.drift.univariate.ranked_columns import Float64, Ranked


def kolmogorov_smirnov(ranked: Ranked, in_reference: npt.NDArray[np.bool_]) -> Float64:
    """The largest distance of the two distribution functions, ``float64[...]`` in [0, 1]; monotone maps do not change it."""
    distances = np.abs(ranked.differences(ranked.counts(in_reference)))
    return np.asarray(np.where(ranked.last, distances, 0.0).max(axis=-1))


def kolmogorov_smirnov_p_values(statistics: Float64, n: int, m: int) -> Float64:
    """Asymptotic p-values, those of ``scipy.stats.ks_2samp(..., method="asymp")``, ``float64[d]``."""
    from scipy.stats import kstwo

    larger, smaller = sorted((float(n), float(m)), reverse=True)
    return np.asarray(np.clip(kstwo.sf(statistics, np.round(larger * smaller / (larger + smaller))), 0.0, 1.0))
