"""The partitions of a training set: each is read, and so verified, by whoever touches it first."""

import os
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fastpath.array_types import KeyArray, WeightArray
from fastpath.format.training_set_file import Partition
from fastpath.kernels._take import is_uniform, mark, take

Int64Array = npt.NDArray[np.int64]

#: Entries of the table of guesses per partition: few partition borders lie between two of them.
_GUESSES: Final = 8
#: From so many new samples on, several threads verify.
_MANY: Final = 4_000_000
_MOST_THREADS: Final = 4


class Partitions:
    """Partitions of ``sizes int64[m]``, given by ``read(i)``.

    Kernels go by the addresses here; those of a partition are there once it was touched.
    """

    def __init__(self, sizes: Int64Array, read: Callable[[int], Partition]) -> None:
        self.sizes, self._read = sizes, read
        self.start = np.zeros(len(sizes) + 1, dtype=np.int64)
        np.cumsum(sizes, out=self.start[1:])
        self.n = int(self.start[-1])
        self._shift, self._guess = _guesses(self.start)
        self._key_at, self._weight_at = (np.zeros(len(sizes), dtype=np.uint64) for _ in range(2))
        # Where all weights are equal the first stands for all, and half of the cache misses are spared.
        self._weight_mask = np.full(len(sizes), -1, dtype=np.int64)
        # There is nothing to read of an empty one.
        self._there = {i: Partition(np.empty(0, np.uint64), np.empty(0, np.float32)) for i in np.flatnonzero(sizes == 0).tolist()}
        self.unlock()
        _all.add(self)

    def unlock(self) -> None:
        """New locks: after a fork those of the parent may be held by threads that are not here."""
        self._locks: dict[int, threading.Lock] = {}

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, i: int) -> Partition:
        """A partition that was touched."""
        return self._there[i]

    def holding(self, start: int, stop: int) -> range:
        """The partitions that hold positions ``start`` to ``stop``."""
        if start >= stop:
            return range(0)
        first, last = np.searchsorted(self.start, (start, stop - 1), side="right").tolist()
        return range(first - 1, last)

    def touch(self, partitions: Iterable[int]) -> None:
        """Read those of them that nobody has touched; several threads share the work, in one call or in several.

        Raises whatever ``read`` raises; such a partition stays untouched.
        """
        new = [i for i in partitions if i not in self._there]
        if self.sizes[new].sum() < _MANY:
            self._read_free(new)
        else:
            n_threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
            with ThreadPoolExecutor(n_threads) as threads:
                list(threads.map(self._read_free, [new] * n_threads))
        # Now those that another thread was at.
        for i in new:
            self._read_one(i, wait=True)

    def take(self, positions: Int64Array, keys: KeyArray, weights: WeightArray) -> int:
        """Keys and weights at ``positions``, all contiguous and of one length, without the GIL.

        Returns the address of a page that could not be read, or 0. Raises ``IndexError`` for a position outside the set.
        """
        if len(self._there) < len(self):
            touched = np.zeros(len(self), dtype=np.uint8)
            self._check(positions, mark(self.start, self._guess, self._shift, positions, touched))
            self.touch(np.flatnonzero(touched).tolist())
        places = self.start, self._guess, self._shift, self._key_at, self._weight_at, self._weight_mask
        outside, fault = take(*places, positions, keys, weights)
        self._check(positions, outside)
        return fault

    def _check(self, positions: Int64Array, outside: int) -> None:
        if outside >= 0:
            raise IndexError(f"position {positions[outside]} lies outside a training set of {self.n} samples")

    def _read_free(self, partitions: list[int]) -> None:
        for i in partitions:
            self._read_one(i, wait=False)

    def _read_one(self, i: int, *, wait: bool) -> None:
        if i in self._there:
            return
        lock = self._locks.setdefault(i, threading.Lock())
        if not lock.acquire(blocking=wait):
            return
        try:
            if i not in self._there:
                found = self._read(i)
                self._key_at[i], self._weight_at[i] = (_address_of(column) for column in found)
                self._weight_mask[i] = 0 if is_uniform(int(self._weight_at[i]), len(found.weights)) else -1
                self._there[i] = found
        finally:
            lock.release()


def _guesses(start: Int64Array) -> tuple[int, npt.NDArray[np.int32]]:
    # The partition at each 2^shift-th position, with so many of them that few have a border to the next.
    n, m = int(start[-1]), len(start) - 1
    shift = 0
    while (n >> shift) > _GUESSES * m:
        shift += 1
    places = np.arange((n >> shift) + 2, dtype=np.int64) << shift
    return shift, np.clip(np.searchsorted(start, places, side="right") - 1, 0, max(m - 1, 0)).astype(np.int32)


def _address_of(column: npt.NDArray[Any]) -> int:
    return int(column.__array_interface__["data"][0])


_all: "weakref.WeakSet[Partitions]" = weakref.WeakSet()


def _unlock_all() -> None:
    for partitions in _all:
        partitions.unlock()


os.register_at_fork(after_in_child=_unlock_all)
