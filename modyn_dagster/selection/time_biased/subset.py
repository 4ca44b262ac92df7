"""A uniform subset of exact size, fast enough for millions of positions."""

import math
from typing import Final

import numpy as np
import numpy.typing as npt

#: Below this share NumPy's own choice, which draws position by position, is faster than a look at all of them.
_SPARSE: Final = 1 / 64
_LEVELS: Final = 2**16


def uniform_positions(rng: np.random.Generator, n: int, k: int) -> npt.NDArray[np.int64]:
    """``k`` of the positions ``0..n-1``, ``int64[k]``, every subset of that size equally likely.

    A large share is drawn as one coin of 16 bits per position, biased to give a few too many, of which a uniform choice leaves
    again. That treats all positions alike, whatever the bias, so the result is exactly uniform.
    """
    if k >= n:
        return np.arange(n)
    if k < n * _SPARSE:
        return rng.choice(n, k, replace=False, shuffle=False)
    level = math.ceil(_LEVELS * (k + 4 * math.sqrt(k * (1 - k / n))) / n)
    if level >= _LEVELS:
        return np.delete(np.arange(n), rng.choice(n, n - k, replace=False, shuffle=False))
    while True:
        coins = rng.bit_generator.random_raw(n // 4 + 1).view(np.uint16)[:n]
        found = np.flatnonzero(coins < level)
        if len(found) >= k:
            return np.delete(found, rng.choice(len(found), len(found) - k, replace=False, shuffle=False))
