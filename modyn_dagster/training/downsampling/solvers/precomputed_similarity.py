"""Similarities that somebody else computed."""

from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modyn_dagster.training.downsampling.solvers.similarity import Likely, Rows, sum_over


class PrecomputedSimilarity:
    """A matrix of them, ``float[n, n]``."""

    #: No row is ever computed.
    n_made: ClassVar[int] = 0

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
        """As of ``Similarity``."""
        return np.asarray(np.maximum(self._matrix - level, 0).sum(axis=1))

    def sum_above(self, j: int, level: Rows, likely: Likely | None = None) -> float:
        """As of ``Similarity``."""
        return sum_over(self._matrix[j], level)

    def lift(self, level: Rows, j: int) -> None:
        """As of ``Similarity``."""
        np.maximum(self._matrix[j], level, out=level)

    def row(self, j: int, likely: Likely | None = None) -> Rows:
        """``float64[n]``."""
        found: Rows = self._matrix[j]
        return found
