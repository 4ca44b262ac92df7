"""Similarities between samples, row by row, in a bounded number of bytes."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modyn_dagster.training.downsampling.solvers.distances import Metric, distances, prepared


class Above:
    """Entries of the rows ``s[j, :]`` above a level. The level only rises: entries below it never count again.

    Args:
        n: number of rows and columns.
        dtype: dtype of the entries.
        n_bytes: memory for entries and their places.
    """

    def __init__(self, n: int, dtype: np.dtype[Any], n_bytes: int) -> None:
        capacity = min(n * n, n_bytes // (dtype.itemsize + np.dtype(np.int32).itemsize))
        # Pages without a write take no memory.
        self._places, self._entries = np.empty(capacity, np.int32), np.empty(capacity, dtype)
        self._ends = np.zeros(n + 1, np.int64)
        self._n_rows = 0

    def take(self, rows: npt.NDArray[Any], level: npt.NDArray[Any]) -> bool:
        """Add the next rows, ``float[m, n]``; returns False where they do not fit."""
        over = rows > level
        counts, first = over.sum(axis=1), self._ends[self._n_rows]
        ends = first + np.cumsum(counts)
        if ends[-1] > len(self._places):
            return False
        self._places[first : ends[-1]] = np.nonzero(over)[1]
        self._entries[first : ends[-1]] = rows[over]
        self._ends[self._n_rows + 1 : self._n_rows + 1 + len(rows)] = ends
        self._n_rows += len(rows)
        return True

    def row(self, j: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[Any]]:
        """Return places ``int32[m]`` and entries ``float[m]`` of row ``j``."""
        part = slice(self._ends[j], self._ends[j + 1])
        return self._places[part], self._entries[part]


Rows = npt.NDArray[Any]
#: Returns the samples whose rows may be needed next, ``int64[m]``.
UpcomingRows = Callable[[], npt.NDArray[np.int64]]

#: Rows computed together where single rows are needed.
PANEL: Final = 32


class Similarity:
    """Rows ``s[j, :]`` of the similarities between all samples.

    ``euclidean`` is the largest distance less the distance, ``cosine`` is ``(1 + cos) / 2``, ``rbf`` is ``exp(-d^2 / mean d^2)``
    and ``dot`` the inner product; all but the last are at least 0. The sum of every row comes with one pass in blocks.

    Args:
        features: ``float[n, d]``.
        metric: one of the above.
        block_bytes: memory for kept rows, and again for rows computed at once. The whole matrix is kept if it fits.

    Attributes:
        n_rows_computed: rows computed singly since the last pass.
    """

    def __init__(self, features: Tensor, metric: Metric, *, block_bytes: int) -> None:
        if metric not in get_args(Metric):
            raise ValueError(f"metric must be one of {', '.join(get_args(Metric))}, not {metric!r}")
        self.n, self.metric = len(features), metric
        self._features, self._squares = prepared(features, metric)
        size = self.n * self._features.element_size()
        self._block_bytes, self.n_rows_computed = block_bytes, 0
        self._above: Above | None = None
        self._block = max(1, min(self.n, block_bytes // size))
        self.dtype = np.dtype(np.float64 if self._features.dtype == torch.float64 else np.float32)
        self._kept: OrderedDict[int, Rows] = OrderedDict()
        self._largest, self._scale = 0.0, 1.0
        if metric == "rbf":
            # The mean squared distance of two samples, from moments.
            mean = 2 * float(self._squares.double().mean() - self._features.double().mean(0).square().sum())
            self._scale = mean if mean > 0 else 1.0
        self._matrix: Rows | None = None
        self.sums = np.empty(self.n)
        self.lowest = np.inf
        self._first_pass()

    @property
    def diagonal(self) -> npt.NDArray[np.float64]:
        """Similarity of each sample to itself, ``float64[n]``."""
        if self.metric == "euclidean":
            return np.full(self.n, self._largest)
        if self.metric == "rbf":
            return np.ones(self.n)
        squares: npt.NDArray[np.float64] = self._squares.double().cpu().numpy()
        return (1 + squares) / 2 if self.metric == "cosine" else squares

    def row(self, j: int, upcoming: UpcomingRows | None = None) -> Rows:
        """Return row ``j``, ``float[n]``. Rows of ``upcoming`` are computed along with it."""
        if self._matrix is not None:
            row_of_matrix: Rows = self._matrix[j]
            return row_of_matrix
        if j not in self._kept:
            members = [j]
            if upcoming is not None:
                members += [int(i) for i in upcoming() if i != j and int(i) not in self._kept][: min(PANEL, self._block) - 1]
            self.n_rows_computed += len(members)
            for i, row in zip(members, self._panel(members)):
                self._kept[i] = row.copy()
            while len(self._kept) > self._block:
                self._kept.popitem(last=False)
        self._kept.move_to_end(j)
        return self._kept[j]

    def sums_above(self, level: Rows) -> npt.NDArray[np.float64]:
        """Compute ``sum over i of max(0, s_ij - level_i)`` of every ``j``, ``float64[n]``, in one pass.

        Later levels must not be lower: entries above this one are kept if they fit, and no row is computed again.
        """
        sums, size = np.empty(self.n), min(PANEL, self._block)
        above = None if self._matrix is not None else Above(self.n, self.dtype, self._block_bytes)
        for start in range(0, self.n, size):
            members = list(range(start, min(self.n, start + size)))
            rows = self._panel(members) if self._matrix is None else self._matrix[members]
            sums[start : start + size] = np.maximum(rows - level, 0).sum(axis=1)
            above = above if above is not None and above.take(rows, level) else None
        self._above, self.n_rows_computed = above, 0
        if above is not None:
            self._kept.clear()
        return sums

    def sum_above(self, j: int, level: Rows, upcoming: UpcomingRows | None = None) -> float:
        """Compute ``sums_above`` of one ``j``, summed in float64."""
        if self._above is None:
            return sum_over(self.row(j, upcoming), level)
        places, entries = self._above.row(j)
        return sum_over(entries, level[places])

    def raise_level(self, level: Rows, j: int) -> None:
        """Raise a level to row ``j`` where that is higher, in place."""
        if self._above is None:
            np.maximum(self.row(j), level, out=level)
        else:
            places, entries = self._above.row(j)
            level[places] = np.maximum(entries, level[places])

    def _first_pass(self) -> None:
        whole = self._block == self.n
        blocks = []
        for start in range(0, self.n, self._block):
            members = list(range(start, min(self.n, start + self._block)))
            raw = self._raw(members)
            self._largest = max(self._largest, float(raw.max()))
            finished = raw if self.metric == "euclidean" else self._finished(raw, members)
            self.sums[start : start + self._block] = finished.sum(axis=1, dtype=np.float64)
            self.lowest = min(self.lowest, float(finished.min()))
            if whole:
                blocks.append(finished)
        if self.metric == "euclidean":
            self.sums = self.n * self._largest - self.sums
            self.lowest = 0.0
        if whole:
            self._matrix = np.subtract(self._largest, blocks[0], out=blocks[0]) if self.metric == "euclidean" else blocks[0]

    def _panel(self, members: list[int]) -> Rows:
        """Compute rows, ``float[m, n]``. The number of computed rows is constant, so that a row always has the same bits."""
        padded = members + members[:1] * (min(PANEL, self._block) - len(members))
        return self._finished(self._raw(padded), padded)[: len(members)]

    def _raw(self, members: list[int]) -> Rows:
        """Compute distances for ``euclidean``, else inner products: ``float[m, n]``."""
        indices = torch.tensor(members)
        if self.metric == "euclidean":
            return distances(self._features, self._squares, indices).cpu().numpy()
        products: Rows = (self._features[indices] @ self._features.T).cpu().numpy()
        return products

    def _finished(self, raw: Rows, members: list[int]) -> Rows:
        if self.metric == "euclidean":
            return self._largest - raw
        if self.metric == "cosine":
            # Rounding may give cosines slightly below -1.
            return np.maximum((1 + raw) / 2, 0)
        if self.metric == "rbf":
            squares = self._squares.cpu().numpy()
            return np.asarray(np.exp((2 * raw - squares[members][:, None] - squares) / self._scale))
        return raw


def sum_over(row: Rows, level: Rows) -> float:
    """Compute ``sum of max(0, row - level)`` in float64, where neither order nor entries below the level matter."""
    over = row - level
    return float(np.maximum(over, 0, out=over).sum(dtype=np.float64))


#: Default memory for one block of similarities, in bytes.
BLOCK_BYTES: Final = 64 << 20
