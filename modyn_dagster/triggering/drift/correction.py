"""p-values of many columns as one."""

from typing import Literal

import numpy as np

from modyn_dagster.triggering.drift.score import Float64

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
