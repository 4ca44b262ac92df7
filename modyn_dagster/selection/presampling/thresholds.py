"""From every group of a pool the keys with the smallest hashes: uniform, exact in size, in bounded memory."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import SelectionError
from modyn_dagster.keys import KeyArray
from modyn_dagster.reproducibility.randomness import hash_keys
from modyn_dagster.selection.quotas import Int64Array

#: Keys and the numbers of their groups; None where there is one group only.
Grouped = tuple[KeyArray, Int64Array | None]
#: Starts a pass over the pool; every pass gives the same.
Pass = Callable[[], Iterable[Grouped]]
_LARGEST: Final = 2**64 - 1
#: Standard deviations around the expected threshold in which it is looked for, and how far when it was not there.
_WIDTHS: Final = (6.0, 60.0, math.inf)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """By group, the hash below which keys are chosen; of keys with that very hash those below ``key``."""

    salt: int
    hash: npt.NDArray[np.uint64]
    key: KeyArray

    def chosen(self, keys: KeyArray, groups: Int64Array | None) -> npt.NDArray[np.bool_]:
        """Mask of the chosen keys, ``bool[n]``."""
        hashes = hash_keys(keys, self.salt)
        limit = _of(self.hash, groups)
        chosen: npt.NDArray[np.bool_] = hashes < limit
        at = np.flatnonzero(hashes == limit)
        if len(at):
            chosen[at] = keys[at] < (self.key[0] if groups is None else self.key[groups[at]])
        return chosen


def thresholds(pool: Pass, counts: Int64Array, quotas: Int64Array, salt: int) -> Thresholds:
    """Thresholds that choose exactly ``quotas[g]`` of the ``counts[g]`` keys of each group g.

    Which keys these are depends on the keys and the salt alone. One pass finds them all but for once in a billion: the
    hash of the right rank is looked for in a narrow interval around where it is expected, so memory is bounded by about
    the square root of the largest quota. Ties of hashes go to the smaller key.
    """
    found = Thresholds(salt, np.zeros(len(counts), np.uint64), np.zeros(len(counts), np.uint64))
    whole = quotas >= counts
    found.hash[whole], found.key[whole] = _LARGEST, _LARGEST
    missing = (quotas > 0) & ~whole
    for width in _WIDTHS:
        if missing.any():
            low, high = _interval(counts, quotas, missing, width)
            missing = _search(pool, quotas, missing, low, high, found)
    if missing.any():
        raise SelectionError("the pool has fewer keys than were counted: it changed while it was selected from")
    return found


def _search(
    pool: Pass,
    quotas: Int64Array,
    missing: npt.NDArray[np.bool_],
    low: npt.NDArray[np.uint64],
    high: npt.NDArray[np.uint64],
    found: Thresholds,
) -> npt.NDArray[np.bool_]:
    """Enter the thresholds that lie between ``low`` and ``high``; says which groups are still without."""
    below = np.zeros(len(quotas), np.int64)
    near = [(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64))]
    for keys, groups in pool():
        hashes = hash_keys(keys, found.salt)
        lower = hashes < _of(low, groups)
        below += np.count_nonzero(lower) if groups is None else np.bincount(groups[lower], minlength=len(quotas))
        at = np.flatnonzero((hashes <= _of(high, groups)) & ~lower)
        near.append((hashes[at], keys[at], np.zeros(len(at), np.int64) if groups is None else groups[at]))
    hashes, keys, groups = (np.concatenate(columns) for columns in zip(*near, strict=True))
    order = np.lexsort((keys, hashes, groups))
    sizes = np.bincount(groups, minlength=len(quotas))
    ranks = quotas - below
    settled = missing & (ranks >= 1) & (ranks <= sizes)
    place = order[(np.cumsum(sizes) - sizes + ranks - 1)[settled]]
    found.hash[settled], found.key[settled] = hashes[place], keys[place] + np.uint64(1)
    return missing & ~settled


def _interval(
    counts: Int64Array, quotas: Int64Array, missing: npt.NDArray[np.bool_], width: float
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Interval of the hash of rank ``quota``, by group; only groups without a threshold are searched."""
    low, high = np.full(len(counts), _LARGEST, np.uint64), np.zeros(len(counts), np.uint64)
    for group in np.flatnonzero(missing).tolist():
        n, k = int(counts[group]), int(quotas[group])
        reach = width * (math.sqrt(k * (n - k) / n) + 1) / n
        # A float of 53 bits is exact enough: the interval is searched, not trusted.
        low[group] = int(max(0.0, k / n - reach) * _LARGEST) if reach < 1 else 0
        high[group] = min(_LARGEST, int((k / n + reach) * _LARGEST)) if reach < 1 else _LARGEST
    return low, high


def _of(by_group: npt.NDArray[np.uint64], groups: Int64Array | None) -> "npt.NDArray[np.uint64] | np.uint64":
    if groups is None:
        only: np.uint64 = by_group[0]
        return only
    return by_group[groups]
