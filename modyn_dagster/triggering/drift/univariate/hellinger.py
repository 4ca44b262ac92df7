"""Hellinger distance of histograms."""

import numpy as np

from modyn_dagster.triggering.drift.univariate.histograms import Float64


def hellinger(p: Float64, q: Float64) -> Float64:
    """``|√p - √q| / √2``, ``float64[...]`` in [0, 1]; symmetric.

    >>> float(hellinger(np.array([1.0, 0.0]), np.array([0.0, 1.0])))
    1.0
    """
    return np.asarray(np.sqrt(np.square(np.sqrt(p) - np.sqrt(q)).sum(axis=-1) / 2))
