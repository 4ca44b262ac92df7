"""How alike samples are, row by row: never more of the n x n matrix at once than a given number of bytes."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Metric = Literal["euclidean", "cosine", "rbf", "dot"]
Rows = npt.NDArray[Any]
#: Says which samples may be asked for next, ``int64[m]``.
Likely = Callable[[], npt.NDArray[np.int64]]

#: Samples up to which distances are computed in float64: cheap there, and small pools are where rounding decides.
EXACT: Final = 2048
#: Rows computed together where rows are asked for one by one.
PANEL: Final = 32
#: Rows of one step of a pass over all.
_PASS: Final = 256


class Similarity:
    """Rows ``s[j, :]`` of the similarities between all samples.

    ``euclidean`` is the largest distance less the distance, ``cosine`` is ``(1 + cos) / 2``, ``rbf`` is ``exp(-d^2 / mean d^2)``
    and ``dot`` the inner product; all but the last are at least 0. The sum of every row comes with one pass in blocks.

    Args:
        features: ``float[n, d]``.
        metric: one of the above.
        block_bytes: rows that are kept, and rows made at once, take at most so much each; the whole matrix is kept if it fits.
    """

    def __init__(self, features: Tensor, metric: Metric, *, block_bytes: int) -> None:
        if metric not in get_args(Metric):
            raise ValueError(f"metric must be one of {', '.join(get_args(Metric))}, not {metric!r}")
        self.n, self.metric = len(features), metric
        self._features, self._squares = prepared(features, metric)
        size = self.n * self._features.element_size()
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
        self._survey()

    @property
    def diagonal(self) -> npt.NDArray[np.float64]:
        """Of everyone to itself, ``float64[n]``."""
        if self.metric == "euclidean":
            return np.full(self.n, self._largest)
        if self.metric == "rbf":
            return np.ones(self.n)
        squares: npt.NDArray[np.float64] = self._squares.double().cpu().numpy()
        return (1 + squares) / 2 if self.metric == "cosine" else squares

    def row(self, j: int, likely: Likely | None = None) -> Rows:
        """``float[n]``. ``likely`` says which rows may be wanted soon: they are computed along with it."""
        if self._matrix is not None:
            found: Rows = self._matrix[j]
            return found
        if j not in self._kept:
            wanted = [j]
            if likely is not None:
                wanted += [int(i) for i in likely() if i != j and int(i) not in self._kept][: min(PANEL, self._block) - 1]
            # Always as many, so that a row has the same bits whatever is computed along with it.
            padded = wanted + [j] * (min(PANEL, self._block) - len(wanted))
            for i, row in zip(wanted, self._finished(self._raw(padded), padded)):
                self._kept[i] = row.copy()
            while len(self._kept) > self._block:
                self._kept.popitem(last=False)
        self._kept.move_to_end(j)
        return self._kept[j]

    def sums_above(self, level: Rows) -> npt.NDArray[np.float64]:
        """``sum over i of max(0, s_ij - level_i)`` of every ``j``, ``float64[n]``, in one pass."""
        sums = np.empty(self.n)
        for start in range(0, self.n, _PASS):
            members = list(range(start, min(self.n, start + _PASS)))
            rows = self._finished(self._raw(members), members) if self._matrix is None else self._matrix[members]
            sums[start : start + _PASS] = np.maximum(rows - level, 0).sum(axis=1)
        return sums

    def _survey(self) -> None:
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

    def _raw(self, members: list[int]) -> Rows:
        """Distances for ``euclidean``, else inner products: ``float[m, n]``."""
        at = torch.tensor(members)
        if self.metric == "euclidean":
            return distances(self._features, self._squares, at).cpu().numpy()
        products: Rows = (self._features[at] @ self._features.T).cpu().numpy()
        return products

    def _finished(self, raw: Rows, members: list[int]) -> Rows:
        if self.metric == "euclidean":
            return self._largest - raw
        if self.metric == "cosine":
            # Opposites may come out a hair below -1.
            return np.maximum((1 + raw) / 2, 0)
        if self.metric == "rbf":
            squares = self._squares.cpu().numpy()
            return np.asarray(np.exp((2 * raw - squares[members][:, None] - squares) / self._scale))
        return raw


class Given:
    """Similarities that somebody else computed, ``float[n, n]``."""

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

    def row(self, j: int, likely: Likely | None = None) -> Rows:
        """``float64[n]``."""
        found: Rows = self._matrix[j]
        return found


def prepared(features: Tensor, metric: Metric = "euclidean") -> tuple[Tensor, Tensor]:
    """Features as they are compared, ``float[n, d]``, and their squared norms.

    Distances do not change when all are moved, nor their order when all are scaled: the mean goes, against cancellation, and
    the largest magnitude becomes about 1 by a power of two, which loses nothing.
    """
    found = features.detach().double() if len(features) <= EXACT else features.detach()
    if not torch.isfinite(found).all():
        raise ValueError("embeddings or gradients hold NaN or infinity")
    if metric == "cosine":
        norms = found.norm(dim=1, keepdim=True)
        found = found / torch.where(norms > 0, norms, 1)
    if metric in ("euclidean", "rbf"):
        found = found - found.mean(0)
    if metric == "euclidean":
        found = rescaled(found)
    return found, found.square().sum(1)


def rescaled(found: Tensor) -> Tensor:
    """Times a power of two, so that the largest magnitude is between 1/2 and 1; zeros stay."""
    largest = float(found.abs().max()) if found.numel() else 0.0
    return found if largest == 0 else torch.ldexp(found, torch.tensor(-int(np.frexp(largest)[1]), device=found.device))


def distances(features: Tensor, squares: Tensor, members: Tensor) -> Tensor:
    """Euclidean ones from ``members`` to all: ``float[m, n]``; exactly 0 to itself."""
    found = torch.addmm(squares, features[members], features.T, alpha=-2)
    found = found.add_(squares[members][:, None]).clamp_(min=0).sqrt_()
    found[torch.arange(len(members)), members] = 0
    return found
