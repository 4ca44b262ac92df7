"""How often keys were trained on, read from the training sets that were written: no table of its own keeps it."""

from collections.abc import Sequence

import numpy as np

from fastpath import TrainingSet
from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.quotas import Int64Array


class Usage:
    """Looks keys up in earlier training sets, whose keys ascend; chunks must be asked for in key order."""

    def __init__(self, sets: Sequence[TrainingSet]) -> None:
        self._walks = [_Walk(one) for one in sets]

    def counts(self, keys: KeyArray) -> Int64Array:
        """In how many of the sets each key is, ``int64[n]``."""
        counts = np.zeros(len(keys), np.int64)
        for walk in self._walks:
            counts += walk.holds(keys)
        return counts


class _Walk:
    """A position in one set that moves on with the keys asked for, and back when they begin again."""

    def __init__(self, one: TrainingSet) -> None:
        self._set = one
        self._next = 0
        self._after = -1

    def holds(self, keys: KeyArray) -> Int64Array:
        found = np.zeros(len(keys), np.int64)
        if not len(keys):
            return found
        if int(keys[0]) <= self._after:
            self._next = 0
        self._after = int(keys[-1])
        while self._next < self._set.n_partitions:
            there = self._set.partition(self._next).keys
            if len(there):
                places = np.minimum(np.searchsorted(there, keys), len(there) - 1)
                found |= there[places] == keys
                if int(there[-1]) > self._after:
                    break
            self._next += 1
        return found
