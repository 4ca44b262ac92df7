"""Similarities that somebody else computed."""

from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modyn_dagster.training.downsampling.solvers.similarity import Rows, UpcomingRows, sum_over


class PrecomputedSimilarity:
    """Similarities from a matrix ``float[n, n]``."""

    #: Number of computed rows: always 0.
    n_rows_computed: ClassVar[int] = 0

    def __init__(self, matrix: Tensor) -> None:
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"similarities must be float[n, n], found shape {tuple(matrix.shape)}")
        if not torch.isfinite(matrix).all():
            raise ValueError("similarities hold NaN or infinity")
        self._matrix = matrix.detach().cpu().double().numpy()
        self.n = len(matrix)
        self.sums, self.lowest = self._matrix.sum(axis=1), float(self._matrix.min())
        self.diagonal, self.dtype = self._matrix.diagonal().copy(), self._matrix.dtype

    def sums_above(self, level: Rows) -> npt.NDArray[np.float64]:
        """See ``Similarity``."""
        return np.asarray(np.maximum(self._matrix - level, 0).sum(axis=1))

    def sum_above(self, j: int, level: Rows, upcoming: UpcomingRows | None = None) -> float:
        """See ``Similarity``."""
        return sum_over(self._matrix[j], level)

    def raise_level(self, level: Rows, j: int) -> None:
        """See ``Similarity``."""
        np.maximum(self._matrix[j], level, out=level)

    def row(self, j: int, upcoming: UpcomingRows | None = None) -> Rows:
        """Return row ``j``, ``float64[n]``."""
        row: Rows = self._matrix[j]
        return row
