"""Histograms of columns in equal bins over the range of both windows."""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.triggering.drift.windows import Windows

Float64 = npt.NDArray[np.float64]

#: A distance of two discrete distributions, ``(float64[..., bins], float64[..., bins]) -> float64[...]``.
BinDistance = Callable[[Float64, Float64], Float64]
_ROWS: Final = 8_192


def binned_distances(distance: BinDistance, windows: Windows, members: npt.NDArray[np.uint8], bins: int) -> Iterator[Float64]:
    """Column by column the distance of every split's histograms, ``float64[P]``; ``members`` is ``uint8[N, P]``.

    Bins are those of ``numpy.histogram`` over the pooled range. All splits are counted by one product of indicators and bins.
    """
    splits = np.ascontiguousarray(members.T).astype(np.float32)
    for column in windows.pooled.T:
        codes = bin_codes(column.astype(np.float64), bins)
        total = np.bincount(codes, minlength=bins).astype(np.float64)
        reference = np.zeros((len(splits), bins))
        for start in range(0, len(codes), _ROWS):
            # Whole numbers below 2**24: exact in float32.
            chosen = np.eye(bins, dtype=np.float32)[codes[start : start + _ROWS]]
            reference += splits[:, start : start + _ROWS] @ chosen
        yield distance(reference / windows.n, (total - reference) / windows.m)


def bin_codes(values: Float64, bins: int) -> npt.NDArray[np.int64]:
    """The bin of each of ``float64[N]``, the highest value in the last one; a constant column is one bin."""
    low, high = values.min(), values.max()
    if low == high:
        return np.zeros(len(values), dtype=np.int64)
    edges = np.linspace(low, high, bins + 1)
    return np.minimum(np.searchsorted(edges, values, side="right") - 1, bins - 1)
