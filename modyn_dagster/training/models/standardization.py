"""Standardization of columns to mean 0 and deviation 1, fitted in one pass in float64 and stored in the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from modyn_dagster.training.memory import Allocate, Arrays, aligned, empty_aligned
from modyn_dagster.training.models.layout import Layout

Float64 = npt.NDArray[np.float64]
#: Half the range of float32: room for the rounding of a difference and a product.
_SAFE: Final = float(np.finfo(np.float32).max) / 2


class Moments:
    """Mean and variance of columns in one pass over chunks.

    Each chunk's moments are merged into the total (Chan, Golub, LeVeque 1979). Values that are not finite count as missing.
    A column is constant exactly when its smallest and largest value are equal, whatever rounding leaves of its variance.
    ``unscaled`` are the places of columns that are to stay as they are.

    >>> moments = Moments(1)
    >>> moments.update(np.array([[1.0], [2.0]])); moments.update(np.array([[6.0]]))
    >>> mean, factor = moments.scaling()
    >>> mean, (1 / factor**2).round(3)
    (array([3.]), array([4.667]))
    """

    def __init__(self, n_features: int, unscaled: Sequence[int] = ()) -> None:
        self._unscaled = list(unscaled)
        self._count = np.zeros(n_features)
        self._mean = np.zeros(n_features)
        self._squares = np.zeros(n_features)
        self._low = np.full(n_features, np.inf)
        self._high = np.full(n_features, -np.inf)

    def update(self, chunk: Float64) -> None:
        """Take in ``float64[n, n_features]``."""
        present = np.isfinite(chunk)
        count = present.sum(axis=0)
        # Magnitudes near the end of the range overflow to infinity; `scaling` sorts those columns out.
        with np.errstate(over="ignore", invalid="ignore"):
            mean = chunk.sum(axis=0, where=present) / np.maximum(count, 1)
            squares = np.square(chunk - mean).sum(axis=0, where=present)
            total = self._count + count
            delta = mean - self._mean
            share = count / np.maximum(total, 1)
            self._squares += squares + np.square(delta) * self._count * share
            self._mean += delta * share
        self._count = total
        self._low = np.minimum(self._low, chunk.min(axis=0, where=present, initial=np.inf))
        self._high = np.maximum(self._high, chunk.max(axis=0, where=present, initial=-np.inf))

    def scaling(self) -> tuple[Float64, Float64]:
        """Mean and ``1 / deviation``; a column that is constant, empty or beyond float64's range gets factor 0."""
        deviation = np.sqrt(self._squares / np.maximum(self._count, 1))
        with np.errstate(divide="ignore", over="ignore"):
            factor = 1 / deviation
        usable = (self._low < self._high) & np.isfinite(self._mean) & np.isfinite(deviation) & np.isfinite(factor)
        mean, factor = np.where(np.isfinite(self._mean), self._mean, 0.0), np.where(usable, factor, 0.0)
        mean[self._unscaled], factor[self._unscaled] = 0, 1
        return mean, factor


@dataclass(frozen=True, slots=True)
class Scaling:
    """``Standardize`` in NumPy: the same bits, in whatever thread. ``mean`` and ``factor``: ``float64[n_features]``."""

    mean: Float64
    factor: Float64
    #: Up to this magnitude of its values, a table cannot leave the range of float32.
    _limit: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_limit", _safe_magnitude(self.mean, self.factor))

    def scale(self, columns: Float64, allocate: Allocate = empty_aligned) -> npt.NDArray[Any]:
        """``float64[n, n_features]``, which it overwrites, to ``float32[n, n_features]``."""
        scaled = allocate(columns.shape, np.float32)
        # A comparison with NaN is false, so nothing is missing here, and no warning has to be held back.
        if columns.size and np.maximum.reduce(np.abs(columns), axis=None) <= self._limit:
            np.subtract(columns, self.mean, out=columns)
            np.multiply(columns, self.factor, out=columns)
            np.copyto(scaled, columns, casting="same_kind")
            return scaled
        missing = ~np.isfinite(columns)
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(columns, self.mean, out=columns)
            np.multiply(columns, self.factor, out=columns)
            np.copyto(scaled, columns, casting="same_kind")
        scaled[missing] = 0
        return scaled


def _safe_magnitude(mean: Float64, factor: Float64) -> float:
    """Largest ``|x|`` whose ``(x - mean) * factor`` is a finite float32 in every column; negative where there is none."""
    with np.errstate(all="ignore"):
        limits = _SAFE / np.abs(factor) - np.abs(mean)
    return float(np.min(limits, initial=_SAFE)) if np.isfinite(mean).all() and np.isfinite(factor).all() else -1.0


class Standardize(nn.Module):
    """``(x - mean) * factor`` as float32; missing values become 0, which is the training set's mean.

    Every value is computed by itself in float64: the result does not depend on the device, the threads or the batch.
    """

    mean: Tensor
    factor: Tensor

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_features, dtype=torch.float64))
        self.register_buffer("factor", torch.ones(n_features, dtype=torch.float64))

    def fit(self, moments: Moments) -> None:
        """Take over the scaling of a training set."""
        mean, factor = moments.scaling()
        self.mean.copy_(torch.from_numpy(mean))
        self.factor.copy_(torch.from_numpy(factor))

    def scaling(self) -> Scaling:
        """The same for arrays."""
        return Scaling(self.mean.cpu().numpy().copy(), self.factor.cpu().numpy().copy())

    def forward(self, columns: Tensor) -> Tensor:
        """``float64[n, n_features]`` to ``float32[n, n_features]``."""
        scaled = (columns - self.mean) * self.factor
        return torch.where(torch.isfinite(columns), scaled, 0.0).to(torch.float32)


class Preparation:
    """``Network.prepare`` in NumPy, bit for bit: prefetching threads must not start torch's own threads.

    Args:
        layout: of the inputs.
        scalings: of the standardised ones, by name.
        double: whether the body computes in float64.
        allocate: memory for what it makes.
    """

    def __init__(self, layout: Layout, scalings: Mapping[str, Scaling], *, double: bool, allocate: Allocate) -> None:
        self._tabular = {each.name for each in layout.inputs if each.tabular}
        self._scalings, self._allocate = scalings, allocate
        self._dtype = np.dtype(np.float64 if double else np.float32)

    def __call__(self, inputs: Arrays) -> Arrays:
        """Takes the arrays over: their memory may be changed or returned."""
        return {name: self._prepared(name, array) for name, array in inputs.items()}

    def _prepared(self, name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if name in self._scalings:
            single = self._scalings[name].scale(array, self._allocate)
            return self._cast(single)
        return self._cast(array) if name in self._tabular or array.dtype.kind == "f" else aligned(array, self._allocate)

    def _cast(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if array.dtype == self._dtype:
            return aligned(array, self._allocate)
        cast = self._allocate(array.shape, self._dtype)
        with np.errstate(over="ignore"):
            np.copyto(cast, array, casting="unsafe")
        return cast
