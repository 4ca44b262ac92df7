"""Numbers of ordered pairs of samples, for many overlapping slices of one ranking at once."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastpath.array_types import Int32Array, Int64Array
from fastpath.kernels import _ranked


class Pairs(NamedTuple):
    """Counts by slice.

    Attributes:
        doubled: twice the number of pairs of a positive ranked above a negative, ties counting half.
        positives, negatives: numbers of samples.
    """

    doubled: Int64Array
    positives: Int64Array
    negatives: Int64Array


def ordered_pairs(
    positive: npt.NDArray[np.bool_], order: Int32Array, rank: Int32Array, starts: Int64Array, stops: Int64Array
) -> Pairs:
    """Count ordered pairs in one walk along the ranking; a sample costs as many steps as there are slices that hold it.

    The share of ordered pairs is the area under the ROC curve. Source: Mann and Whitney (1947), statistic U.

    Args:
        positive: ``bool[n]``, by row.
        order: rows by ascending rank, ``int32[n]``.
        rank: ``int32[n]``, by row; equal ranks are ties.
        starts, stops: bounds of the slices, ``int64[m]`` each, within 0 and n and both ascending; a slice may be empty.

    Raises:
        ValueError: lengths that differ, or slices that are not ascending or leave the rows.

    >>> ordered_pairs(np.array([False, True]), *(np.array([0, 1], np.int32),) * 2, np.array([0]), np.array([2]))
    Pairs(doubled=array([2]), positives=array([1]), negatives=array([1]))
    """
    n = len(positive)
    if len(order) != n or len(rank) != n or len(starts) != len(stops):
        raise ValueError("positive, order and rank must have one length, starts and stops another")
    edges = np.concatenate([starts, stops])
    if (
        (np.diff(starts) < 0).any()
        or (np.diff(stops) < 0).any()
        or (starts > stops).any()
        or (edges < 0).any()
        or (edges > n).any()
    ):
        raise ValueError("slices must be ascending and lie within the rows")
    if n and not (int(order.min()) >= 0 and int(order.max()) < n):
        raise ValueError("order must hold rows")
    # A row lies in the slices that have begun but not ended before it.
    first = np.cumsum(np.bincount(stops, minlength=n + 1))[:n].astype(np.int32)
    last = np.cumsum(np.bincount(starts, minlength=n + 1))[:n].astype(np.int32)
    doubled, below, tied = (np.zeros(len(starts), np.int64) for _ in range(3))
    flags = np.ascontiguousarray(positive).view(np.uint8)
    _ranked.add(flags, np.ascontiguousarray(order), np.ascontiguousarray(rank), first, last, doubled, below, tied)
    return Pairs(doubled, stops - starts - below, below)
