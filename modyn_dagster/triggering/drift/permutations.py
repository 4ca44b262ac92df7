"""Permutation tests: which samples count as the reference, once as they came and then shuffled.

Every metric takes an indicator matrix and answers one statistic per column, so that all permutations cost one matrix product
instead of one pass each.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

Indicators = npt.NDArray[np.uint8]

#: Statistics that differ by less than rounding does are equal: a permutation that changes nothing must not decide a test.
_ROUNDING: Final = 1e-6


def indicators(n_reference: int, n_current: int, permutations: int, rng: np.random.Generator) -> Indicators:
    """``uint8[n_reference + n_current, 1 + permutations]``: 1 where a pooled sample belongs to the reference.

    Column 0 is the split as it is, reference first; every other column is a random split of the same sizes.
    """
    rows = np.zeros((1 + permutations, n_reference + n_current), dtype=np.uint8)
    rows[:, :n_reference] = 1
    rows[1:] = rng.permuted(rows[1:], axis=1)
    return np.ascontiguousarray(rows.T)


def permutation_p_value(statistics: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The share of splits at least as extreme as the first, which counts itself: never 0, and valid at any level.

    Args:
        statistics: ``float[..., 1 + permutations]``, larger is more extreme.

    Returns:
        ``float64[...]``, at least ``1 / (1 + permutations)`` (Phipson & Smyth, SAGMB 2010).

    >>> float(permutation_p_value([3.0, 1.0, 2.0, 5.0]))
    0.5
    """
    scores = np.asarray(statistics, dtype=np.float64)
    observed = scores[..., :1]
    tolerance = _ROUNDING * np.abs(scores).max(axis=-1, keepdims=True)
    return np.asarray((scores >= observed - tolerance).mean(axis=-1))
