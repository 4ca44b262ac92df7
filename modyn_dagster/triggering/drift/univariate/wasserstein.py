"""Wasserstein distance of order 1 of single columns."""

import numpy as np
import numpy.typing as npt

from modyn_dagster.triggering.drift.univariate.ranked_columns import Float64, Ranked


def wasserstein(ranked: Ranked, in_reference: npt.NDArray[np.bool_]) -> Float64:
    """The area between the two distribution functions, ``float64[...]``: how far values must move, in the column's unit."""
    distances = np.abs(ranked.differences(ranked.counts(in_reference)))[..., :-1]
    return np.asarray((distances * np.diff(ranked.values.astype(np.float64), axis=-1)).sum(axis=-1))
