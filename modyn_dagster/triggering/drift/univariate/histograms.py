"""Distances of histograms of columns, in equal bins over the range of both windows: Hellinger and Jensen-Shannon."""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.triggering.drift.windows import Float64, Windows, at_unit_scale

#: Distance of two discrete distributions, ``(float64[..., bins], float64[..., bins]) -> float64[...]``.
BinDistance = Callable[[Float64, Float64], Float64]
_ROWS: Final = 8_192


def binned_distances(distance: BinDistance, windows: Windows, members: npt.NDArray[np.uint8], bins: int) -> Iterator[Float64]:
    """Distances of the histograms of every split, ``float64[P]``, column by column; ``members`` is ``uint8[N, P]``.

    Bins are those of ``numpy.histogram`` over the pooled range. One product of indicators and bins counts all splits.
    """
    splits = np.ascontiguousarray(members.T).astype(np.float32)
    for column in windows.pooled.T:
        codes = bin_codes(at_unit_scale(column.astype(np.float64)[:, None])[:, 0], bins)
        total = np.bincount(codes, minlength=bins).astype(np.float64)
        reference = np.zeros((len(splits), bins))
        for start in range(0, len(codes), _ROWS):
            # Counts stay below 2**24 and are exact in float32.
            one_hot = np.eye(bins, dtype=np.float32)[codes[start : start + _ROWS]]
            reference += splits[:, start : start + _ROWS] @ one_hot
        yield distance(reference / windows.n, (total - reference) / windows.m)


def bin_codes(values: Float64, bins: int) -> npt.NDArray[np.int64]:
    """Bins of ``float64[N]``; the highest value lies in the last one, and a constant column in bin 0.

    >>> bin_codes(np.array([0.0, 0.5, 1.0]), bins=2)
    array([0, 1, 1])
    """
    low, high = values.min(), values.max()
    if low == high:
        return np.zeros(len(values), dtype=np.int64)
    edges = np.linspace(low, high, bins + 1)
    return np.minimum(np.searchsorted(edges, values, side="right") - 1, bins - 1)


def hellinger(p: Float64, q: Float64) -> Float64:
    """Hellinger distance ``|√p - √q| / √2``, ``float64[...]`` in [0, 1]; symmetric (Hellinger, Crelle's Journal 1909).

    Args:
        p: shares of the bins in one window, ``float64[..., bins]``.
        q: shares in the other window.

    >>> float(hellinger(np.array([1.0, 0.0]), np.array([0.0, 1.0])))
    1.0
    """
    return np.asarray(np.sqrt(np.square(np.sqrt(p) - np.sqrt(q)).sum(axis=-1) / 2))


def jensen_shannon(p: Float64, q: Float64) -> Float64:
    """Root of the Jensen-Shannon divergence in nats, ``float64[...]`` in [0, √ln 2]; symmetric.

    The root is a metric (Endres & Schindelin, IEEE Transactions on Information Theory 2003). The distance equals
    ``scipy.spatial.distance.jensenshannon``, except that shares are not normalised again.

    Args:
        p: shares of the bins in one window, ``float64[..., bins]``.
        q: shares in the other window.

    >>> round(float(jensen_shannon(np.array([1.0, 0.0]), np.array([0.0, 1.0]))) ** 2, 6)
    0.693147
    """
    from scipy.special import rel_entr

    middle = (p + q) / 2
    divergence = (rel_entr(p, middle) + rel_entr(q, middle)).sum(axis=-1) / 2
    return np.asarray(np.sqrt(np.maximum(divergence, 0.0)))
