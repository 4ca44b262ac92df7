"""Quotas: the number of samples that each group of a pool contributes."""

from typing import Literal

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
Filling = Literal["fair", "exact", "equal"]


def balanced(counts: Int64Array, target: int, filling: Filling) -> Int64Array:
    """Quotas of groups of ``counts`` samples by water-filling, ``int64[g]``: what small groups lack goes to the larger ones.

    Args:
        counts: samples of each group.
        target: wanted in all.
        filling: ``fair`` gives every group that is not used up the same number, so that up to one sample per group may be
            missing from the target; ``exact`` gives those one each to the first such groups; ``equal`` gives every group the
            same number, at most the size of the smallest.

    >>> balanced(np.array([100, 5, 40]), 60, "fair").tolist()
    [27, 5, 27]
    >>> balanced(np.array([100, 5, 40]), 60, "exact").tolist()
    [28, 5, 27]
    >>> balanced(np.array([100, 5, 40]), 60, "equal").tolist()
    [5, 5, 5]
    """
    if not len(counts):
        return counts.copy()
    if filling == "equal":
        return np.full(len(counts), min(target // len(counts), int(counts.min())))
    level = _level(counts, target)
    quotas = np.minimum(counts, level)
    if filling == "exact":
        unused = np.flatnonzero(counts > level)
        quotas[unused[: max(0, target - int(quotas.sum()))]] += 1
    return quotas


def in_turn(counts: Int64Array, target: int) -> Int64Array:
    """Quotas when the first group is used up before the second is touched, and so on.

    >>> in_turn(np.array([3, 5, 9]), 6).tolist()
    [3, 3, 0]
    """
    return np.diff(np.minimum(np.cumsum(counts), target), prepend=0)


def shared(counts: Int64Array, target: int, share: float) -> Int64Array:
    """Quotas of two groups, the first of which gives ``share`` of the target; what one lacks the other gives.

    >>> shared(np.array([100, 100]), 50, 0.8).tolist()
    [40, 10]
    >>> shared(np.array([10, 100]), 50, 0.8).tolist()
    [10, 40]
    """
    first, second = counts.tolist()
    wanted = min(first, round(share * target))
    wanted = max(wanted, min(first, target - second))
    return np.array([wanted, min(second, target - wanted)])


def _level(counts: Int64Array, target: int) -> int:
    """The largest level with ``sum(min(counts, level)) <= target``."""
    ascending = np.sort(counts)
    used = 0
    for number, count in enumerate(ascending.tolist()):
        others = len(ascending) - number
        if used + count * others > target:
            return int((target - used) // others)
        used += count
    return int(ascending[-1])
