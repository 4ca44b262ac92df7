"""Partitions of a training set: each is read, and so verified, with its first use."""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
import numpy.typing as npt

from fastpath.array_types import Int64Array, KeyArray, WeightArray, address_of
from fastpath.format.training_set_file import Partition
from fastpath.kernels._take import is_uniform, mark, take
from fastpath.threads.forks import reset_after_fork

#: Entries of the table of guesses per partition: few partition borders lie between two of them.
_GUESSES: Final = 8
#: Number of samples from which on several threads verify.
_MIN_THREADED: Final = 4_000_000
_MAX_THREADS: Final = 4


class Partitions:
    """Partitions of ``sizes int64[m]``, read by ``read(i)``.

    Kernels use the addresses here; those of a partition are set once it was verified.
    """

    def __init__(self, sizes: Int64Array, read: Callable[[int], Partition]) -> None:
        self.sizes, self._read = sizes, read
        self.start = np.zeros(len(sizes) + 1, dtype=np.int64)
        np.cumsum(sizes, out=self.start[1:])
        self.n = int(self.start[-1])
        self._shift, self._guess = _guesses(self.start)
        self._key_at, self._weight_at = (np.zeros(len(sizes), dtype=np.uint64) for _ in range(2))
        # Where all weights are equal the first stands for all, which saves half of the cache misses.
        self._weight_mask = np.full(len(sizes), -1, dtype=np.int64)
        empty = Partition(np.empty(0, np.uint64), np.empty(0, np.float32))
        self._loaded = dict.fromkeys(np.flatnonzero(sizes == 0).tolist(), empty)
        self.unlock()
        reset_after_fork(self.unlock)

    def unlock(self) -> None:
        """Renew the locks: in a forked process threads of the parent may hold the old ones for ever."""
        self._locks: dict[int, threading.Lock] = {}

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, i: int) -> Partition:
        """A verified partition."""
        return self._loaded[i]

    def holding(self, start: int, stop: int) -> range:
        """Partitions that hold positions ``start`` to ``stop``."""
        if start >= stop:
            return range(0)
        first, last = np.searchsorted(self.start, (start, stop - 1), side="right").tolist()
        return range(first - 1, last)

    def verify(self, partitions: Iterable[int]) -> None:
        """Read those partitions that were not read before; several threads share the work, in one call or in several.

        Raises the errors of ``read``; such a partition remains unread.
        """
        new = [i for i in partitions if i not in self._loaded]
        if self.sizes[new].sum() < _MIN_THREADED:
            self._read_free(new)
        else:
            n_threads = min(_MAX_THREADS, len(os.sched_getaffinity(0)))
            with ThreadPoolExecutor(n_threads) as threads:
                list(threads.map(self._read_free, [new] * n_threads))
        # Finally those that another call was reading.
        for i in new:
            self._read_one(i, wait=True)

    def take(self, positions: Int64Array, keys: KeyArray, weights: WeightArray) -> int:
        """Keys and weights at ``positions``, all contiguous and of one length, without the GIL.

        Returns the address of a page that could not be read, or 0. Raises ``IndexError`` for a position outside the set.
        """
        if len(self._loaded) < len(self):
            touched = np.zeros(len(self), dtype=np.uint8)
            self._check(positions, mark(self.start, self._guess, self._shift, positions, touched))
            self.verify(np.flatnonzero(touched).tolist())
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
        if i in self._loaded:
            return
        lock = self._locks.setdefault(i, threading.Lock())
        if not lock.acquire(blocking=wait):
            return
        try:
            if i not in self._loaded:
                partition = self._read(i)
                self._key_at[i], self._weight_at[i] = (address_of(column) for column in partition)
                self._weight_mask[i] = 0 if is_uniform(int(self._weight_at[i]), len(partition.weights)) else -1
                self._loaded[i] = partition
        finally:
            lock.release()


def _guesses(start: Int64Array) -> tuple[int, npt.NDArray[np.int32]]:
    # Partition at each 2^shift-th position, at distances so small that few of them hold a partition border.
    n, m = int(start[-1]), len(start) - 1
    shift = 0
    while (n >> shift) > _GUESSES * m:
        shift += 1
    places = np.arange((n >> shift) + 2, dtype=np.int64) << shift
    return shift, np.clip(np.searchsorted(start, places, side="right") - 1, 0, max(m - 1, 0)).astype(np.int32)
