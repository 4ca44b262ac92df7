"""What a selection reads: the keys of a window, and what is known of them."""

from collections.abc import Iterable, Sequence
from typing import Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.quotas import Int64Array


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
class Window(Protocol):
    """A pool that knows its size without being read, and can be made cheap to read again."""

    def count(self) -> int:
        """Number of keys."""

    def repeatable(self) -> Self:
        """The same pool, for several passes."""


def count(pool: Iterable[KeyArray]) -> int:
    """Number of keys of a pool; read where it does not know."""
    return pool.count() if isinstance(pool, Window) else sum(len(keys) for keys in pool)


def repeatable(pool: Iterable[KeyArray]) -> Iterable[KeyArray]:
    """The pool as it is best read several times."""
    return pool.repeatable() if isinstance(pool, Window) else pool
