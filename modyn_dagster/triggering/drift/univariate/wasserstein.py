"""Wasserstein distance of order 1 of single columns."""

import numpy as np
import numpy.typing as npt

from modyn_dagster.triggering.drift.univariate.ranked_columns import Ranked
from modyn_dagster.triggering.drift.windows import Float64


def wasserstein(ranked: Ranked, in_reference: npt.NDArray[np.bool_]) -> Float64:
    """Area between the two distribution functions, ``float64[...]``, in the column's unit.

    The area is the mean distance that values must move from one window to the other (Vaserstein, Problems of Information
    Transmission 1969; Ramdas et al., Entropy 2017), and equals ``scipy.stats.wasserstein_distance``.

    Args:
        ranked: pooled values of the columns.
        in_reference: bool ``[..., N]``, True where a value is of the reference.

    >>> from modyn_dagster.triggering.drift.univariate.ranked_columns import observed
    >>> from modyn_dagster.triggering.drift.windows import Windows
    >>> observed(wasserstein, Windows(np.array([[0.0], [1.0]]), np.array([[2.0], [3.0]])))
    array([2.])
    """
    distances = np.abs(ranked.differences(ranked.counts(in_reference)))[..., :-1]
    return np.asarray((distances * np.diff(ranked.values.astype(np.float64), axis=-1)).sum(axis=-1))
