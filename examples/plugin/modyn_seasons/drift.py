"""A drift metric of spreads."""

import numpy as np

from modyn_dagster.triggering.drift.custom import DriftDistance
from modyn_dagster.triggering.drift.windows import Features


def spread(quantile: float = 0.9) -> DriftDistance:
    """Largest difference of a column's quantile between both windows, in units of the reference's spread.

    Args:
        quantile: of each column.
    """
    if not 0 < quantile < 1:
        raise ValueError(f"quantile must be between 0 and 1, not {quantile}")

    def distance(reference: Features, current: Features, _rng: np.random.Generator) -> float:
        old, new = np.quantile(reference, quantile, axis=0), np.quantile(current, quantile, axis=0)
        unit = np.maximum(reference.std(axis=0), np.finfo(np.float32).tiny)
        return float(np.max(np.abs(old - new) / unit))

    return distance
