"""A straight line through points, by ridge regression."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def ridge(x: npt.ArrayLike, y: npt.ArrayLike, alpha: float = 1.0) -> tuple[float, float]:
    """Slope and intercept that minimise ``sum((y - slope * x - intercept) ** 2) + alpha * slope ** 2``.

    The intercept is free, as in scikit-learn's ``Ridge``: one point gives a constant. ``x`` and ``y`` are ``[n]``, n >= 1.

    >>> ridge([0, 1], [1, 2], alpha=0.0)
    (1.0, 1.0)
    """
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    a_mean, b_mean = a.mean(), b.mean()
    from_mean = a - a_mean
    spread = float(from_mean @ from_mean) + alpha
    slope = float(from_mean @ (b - b_mean)) / spread if spread else 0.0
    return slope, float(b_mean - slope * a_mean)


def next_by_ridge(values: Sequence[float]) -> float:
    """What would come after values that were taken at 0, 1, 2, …; one value is its own forecast."""
    slope, intercept = ridge(np.arange(len(values)), values)
    return slope * len(values) + intercept
