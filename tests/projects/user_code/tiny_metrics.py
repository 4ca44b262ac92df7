"""Drift metrics that projects of tests name by import path."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]


def sampled_mean(size: int = 20) -> Callable[[Floats, Floats, np.random.Generator], float]:
    """Distance of the means of random parts of both windows."""

    def distance(reference: Floats, current: Floats, rng: np.random.Generator) -> float:
        old, new = (rng.choice(window, size).mean(axis=0) for window in (reference, current))
        return float(np.linalg.norm(old - new))

    return distance
