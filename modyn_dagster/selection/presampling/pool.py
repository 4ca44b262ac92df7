"""Pool of a selection: the key window of a trigger, its columns, and how often its keys were trained on before."""

from collections.abc import Iterable, Sequence
from typing import Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from fastpath import TrainingSet
from modyn_dagster.keys import ORIGIN, KeyArray, KeyRange
from modyn_dagster.selection.quotas import Int64Array
from modyn_dagster.spec.selection import LastTriggers, Window


@runtime_checkable
class Columns(Protocol):
    """Keys of a window with a value each, in key order, chunk by chunk; every call begins again."""

    def labels(self) -> Iterable[tuple[KeyArray, Int64Array]]:
        """Class indices; -1 where a sample has none."""

    def attribute(self, name: str) -> Iterable[tuple[KeyArray, Sequence[str | None]]]:
        """Values of an attribute as text; None where a sample has none."""

    def scores(self, attribute: str | None, expression: str | None) -> Iterable[tuple[KeyArray, npt.NDArray[np.float64]]]:
        """An attribute as a number, or the value of an expression by import path; NaN where a sample has none."""


@runtime_checkable
class SizedPool(Protocol):
    """A pool that knows its size without being read, and can be made cheap to read again."""

    def count(self) -> int:
        """Number of keys."""

    def repeatable(self) -> Self:
        """The same pool, for several passes."""


def count(pool: Iterable[KeyArray]) -> int:
    """Number of keys of a pool; read where it does not know."""
    return pool.count() if isinstance(pool, SizedPool) else sum(len(keys) for keys in pool)


def repeatable(pool: Iterable[KeyArray]) -> Iterable[KeyArray]:
    """The pool as it is best read several times."""
    return pool.repeatable() if isinstance(pool, SizedPool) else pool


class Usage:
    """Looks keys up in earlier training sets, whose keys ascend; chunks must be asked for in key order."""

    def __init__(self, sets: Sequence[TrainingSet]) -> None:
        self._walks = [_SetCursor(one) for one in sets]

    def counts(self, keys: KeyArray) -> Int64Array:
        """In how many of the sets each key is, ``int64[n]``."""
        counts = np.zeros(len(keys), np.int64)
        for walk in self._walks:
            counts += walk.holds(keys)
        return counts


class _SetCursor:
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


def window_of(window: Window, *, until: int, trained: Sequence[int], origin: int = ORIGIN) -> KeyRange:
    """The key range of a trigger at key ``until``.

    Args:
        window: of the spec. ``last_triggers: n`` reaches back to the n-th last trained trigger, so 1 is the same as
            ``since_last_trigger``; ``all`` is the whole stream, also what arrived before the run began.
        until: the trigger's key.
        trained: keys of the run's earlier *trained* triggers, ascending; skipped and failed ones left no model, so what they
            would have trained on still counts as new.
        origin: where the run began.
    """
    if window == "all":
        return KeyRange(ORIGIN, until)
    back = window.last_triggers if isinstance(window, LastTriggers) else 1
    return KeyRange(trained[-back] if len(trained) >= back else origin, until)
