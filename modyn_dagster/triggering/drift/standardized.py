"""Columns on one scale, whatever their units."""

from typing import Any

import numpy as np
import numpy.typing as npt


def standardized(pooled: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float64]:
    """``float64[N, d]`` with mean 0 and deviation 1 over both windows together; constant columns become 0.

    Both windows take part, so that a permutation test sees them alike.
    """
    values = pooled.astype(np.float64)
    centered = values - values.mean(axis=0)
    deviation = centered.std(axis=0)
    constant = values.max(axis=0) == values.min(axis=0)
    return np.asarray(np.where(constant, 0.0, centered) / np.where(constant | (deviation == 0), 1.0, deviation))
