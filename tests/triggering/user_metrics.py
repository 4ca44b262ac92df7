"""Drift metrics named by import path in tests, and some that break the laws."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.spatial.distance import cdist, pdist


def energy():
    """Energy distance, unbiased, from all pairs."""

    def distance(reference, current, rng):
        return 2 * cdist(reference, current).mean() - pdist(reference).mean() - pdist(current).mean()

    return distance


def returning(value: Any = 1.0):
    return lambda reference, current, rng: value


def nothing():
    return returning(None)


def not_a_number():
    return returning(np.nan)


def infinite():
    return returning(np.inf)


def no_function():
    return "a text"


def failing():
    def distance(reference, current, rng):
        raise KeyError("no such column")

    return distance


def dividing():
    return lambda reference, current, rng: 1 / (len(reference) - len(reference))


def scaling():
    def distance(reference, current, rng):
        reference *= 2
        return 0.0

    return distance


def counting():
    numbers = itertools.count()
    return lambda reference, current, rng: float(next(numbers))


def drawing(library: str = "random"):
    draws: dict[str, Callable[[], float]] = {
        "random": random.random,
        "numpy": lambda: float(np.random.random()),
        "torch": lambda: float(torch.rand(())),
    }
    return lambda reference, current, rng: float(abs(reference.mean() - current.mean()) + 1e-9 * draws[library]())


def closeness():
    return lambda reference, current, rng: -float(np.abs(reference.mean() - current.mean()))


def drawn():
    return lambda reference, current, rng: float(abs(reference.mean() - current.mean()) + 1e-3 * rng.random())
