"""The entries of a matrix that lie above a level, row by row, in bounded memory."""

from typing import Any

import numpy as np
import numpy.typing as npt


class Above:
    """What of the rows ``s[j, :]`` lies above a level that only rises: what lies below it never counts again.

    Args:
        n: rows and columns.
        dtype: of the entries.
        n_bytes: that entries and their places may take.
    """

    def __init__(self, n: int, dtype: np.dtype[Any], n_bytes: int) -> None:
        capacity = min(n * n, n_bytes // (dtype.itemsize + np.dtype(np.int32).itemsize))
        # Pages that are never written to take no memory.
        self._places, self._entries = np.empty(capacity, np.int32), np.empty(capacity, dtype)
        self._ends = np.zeros(n + 1, np.int64)
        self._n_rows = 0

    def take(self, rows: npt.NDArray[Any], level: npt.NDArray[Any]) -> bool:
        """The next rows, ``float[m, n]``; False where they do not fit any more."""
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
        """Places ``int32[m]`` and entries ``float[m]`` of row ``j``."""
        part = slice(self._ends[j], self._ends[j + 1])
        return self._places[part], self._entries[part]
