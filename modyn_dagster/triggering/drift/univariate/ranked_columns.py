"""Columns of two windows in sorted order, for statistics of empirical distribution functions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.triggering.drift.windows import Float64, Windows

#: Number of values of a group of columns: they fit the processor's cache.
_GROUP: Final = 1 << 15


@dataclass(frozen=True)
class Ranked:
    """Pooled values of ``c`` columns, each sorted.

    Attributes:
        values: ``[c, N]``, ascending.
        order: ``int64[c, N]``, number of the pooled sample of each value.
        n, m: numbers of samples of the reference and of the current window, ``n + m = N``.
    """

    values: npt.NDArray[np.floating[Any]]
    order: npt.NDArray[np.int64]
    n: int
    m: int

    @cached_property
    def last(self) -> npt.NDArray[np.bool_]:
        """Last value of each run of equal values, ``bool[c, N]``; distribution functions are defined there."""
        ends = np.ones(self.values.shape, dtype=np.bool_)
        np.not_equal(self.values[:, 1:], self.values[:, :-1], out=ends[:, :-1])
        return ends

    @cached_property
    def middle_ranks(self) -> Float64:
        """Ranks from 1, ``float64[c, N]``; equal values share the middle of theirs."""
        from scipy.stats import rankdata

        return np.asarray(rankdata(self.values, axis=-1))

    def column(self, c: int) -> "Ranked":
        """One column, to be broadcast over permutations."""
        return Ranked(self.values[c : c + 1], self.order[c : c + 1], self.n, self.m)

    def counts(self, in_reference: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
        """Number of reference values among the first 1, 2, ... N, ``int32[..., N]``."""
        return np.cumsum(in_reference, axis=-1, dtype=np.int32)

    def differences(self, counts: npt.NDArray[np.int32]) -> Float64:
        """Distribution function of the reference minus that of the current window after each value; defined only at ``last``."""
        numbers = np.arange(1, self.n + self.m + 1, dtype=np.int32)
        return counts / self.n - (numbers - counts) / self.m


#: Statistic of every column or permutation: ``(ranked, in_reference bool[..., N]) -> float64[...]``.
RankStatistic = Callable[[Ranked, npt.NDArray[np.bool_]], Float64]


def ranked_columns(windows: Windows) -> Iterator[Ranked]:
    """Groups of columns, in order."""
    pooled = windows.pooled
    group = max(1, _GROUP // len(pooled))
    for start in range(0, windows.width, group):
        columns = np.ascontiguousarray(pooled[:, start : start + group].T)
        order = np.argsort(columns, axis=1)
        yield Ranked(np.take_along_axis(columns, order, axis=1), order, windows.n, windows.m)


def observed(statistic: RankStatistic, windows: Windows) -> Float64:
    """Statistic of every column, ``float64[d]``."""
    return np.concatenate([statistic(ranked, ranked.order < ranked.n) for ranked in ranked_columns(windows)])


def permuted(statistic: RankStatistic, windows: Windows, members: npt.NDArray[np.uint8]) -> Iterator[Float64]:
    """Statistic of every split, ``float64[P]``, column by column; ``members`` is ``uint8[N, P]``."""
    splits = np.ascontiguousarray(members.T).view(np.bool_)
    rows = max(1, _GROUP // len(members))
    for ranked in ranked_columns(windows):
        for c in range(len(ranked.order)):
            column, order = ranked.column(c), ranked.order[c]
            parts = [statistic(column, splits[p : p + rows, order]) for p in range(0, len(splits), rows)]
            yield np.concatenate(parts)
