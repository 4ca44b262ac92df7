"""Windows of features for drift metrics: checked, sampled, standardized, projected by PCA."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import WrongShape
from modyn_dagster.reproducibility.randomness import rng_for

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PCA:
    """Principal components of samples (Pearson 1901; Hotelling 1933).

    Attributes:
        mean: ``float64[d]``.
        axes: ``float64[d, k]``, orthonormal, in order of falling variance.

    >>> pca = PCA.fit(np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]), components=1)
    >>> pca.transform(np.array([[3.0, 3.0]])).round(3)
    array([[2.828]])
    """

    mean: Float64
    axes: Float64

    @classmethod
    def fit(cls, samples: npt.NDArray[np.floating[Any]], components: int) -> Self:
        """Leading components of ``float[n, d]``; at most ``min(n - 1, d)``, at least one."""
        values = samples.astype(np.float64)
        mean = values.mean(axis=0)
        centered = values - mean
        count = max(1, min(components, len(values) - 1, values.shape[1]))
        if len(values) >= values.shape[1]:
            axes = np.linalg.eigh(centered.T @ centered)[1][:, ::-1]
        else:
            # The singular vectors of a few long rows come cheaper than the eigenvectors of their covariance.
            axes = np.linalg.svd(centered, full_matrices=False)[2].T
        return cls(mean, _with_fixed_signs(axes[:, :count]))

    def transform(self, samples: npt.NDArray[np.floating[Any]]) -> Float64:
        """Coordinates of ``float[n, d]`` on the axes, ``float64[n, k]``."""
        return np.asarray((samples.astype(np.float64) - self.mean) @ self.axes)


def _with_fixed_signs(axes: Float64) -> Float64:
    """Axes whose largest entry is positive: an axis and its opposite are equally good."""
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])]
    return np.asarray(axes * np.where(largest < 0, -1.0, 1.0))


Features = npt.NDArray[np.float32] | npt.NDArray[np.float64]

#: Spreads between ``2**-40`` and ``2**40`` keep their scale: fourth powers of float64 and squares of float32 are safe there.
_USUAL: Final = 40

#: Least number of samples of a window: unbiased estimates need pairs inside each window.
LEAST = 2


@dataclass(frozen=True)
class Windows:
    """Reference and current samples, ``float[n, d]`` and ``float[m, d]``, both of one dtype.

    Attributes:
        reference: samples the model has seen.
        current: samples to compare with the reference.
        device: of torch.
        seed: of the pipeline run.
        place: path of every random draw, see ``rng_for``.
        exponent: both windows hold the features divided by ``2**exponent``; other than 0 only after ``rescaled``.
    """

    reference: Features
    current: Features
    device: str = "cpu"
    seed: int = 0
    place: tuple[int | str, ...] = ()
    exponent: int = 0

    @property
    def n(self) -> int:
        """Number of reference samples."""
        return len(self.reference)

    @property
    def m(self) -> int:
        """Number of current samples."""
        return len(self.current)

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self.reference.shape[1])

    @cached_property
    def pooled(self) -> Features:
        """Reference samples, then current ones, ``float[n + m, d]``."""
        return np.concatenate([self.reference, self.current])

    def rng(self, *path: int | str) -> np.random.Generator:
        """Random generator of one purpose."""
        return rng_for(self.seed, *self.place, *path)

    def sampled(self, size: int | None) -> "Windows":
        """At most ``size`` samples of each window, drawn without replacement, in their order."""
        if size is None:
            return self
        reference = _draw(self.reference, size, self.rng("sample", "reference"))
        current = _draw(self.current, size, self.rng("sample", "current"))
        return replace(self, reference=reference, current=current)

    def rescaled(self) -> "Windows":
        """The windows at a scale at which squares and fourth powers of differences neither overflow nor vanish.

        Features of a usual scale stay as they are. Others are divided by a power of two, which rounds nothing, so distances keep
        their proportions; features of a tiny spread are also shifted by the smallest value of their column.
        """
        low, high = self.pooled.min(axis=0), self.pooled.max(axis=0)
        exponent = extreme_exponent(float((high / 2 - low / 2).max()))
        if exponent == 0:
            return self
        offset = low if exponent < 0 else np.zeros_like(low)
        reference, current = (np.ldexp(window - offset, -exponent) for window in (self.reference, self.current))
        return replace(self, reference=reference, current=current, exponent=self.exponent + exponent)

    def reduced(self, components: int | None, *, symmetric: bool) -> "Windows":
        """Projection on principal components, fitted on the reference, or on both windows where ``symmetric``.

        Components fit their own samples better than others. A permutation test, which takes the windows as exchangeable, would
        then sound without drift; for p-values they are fitted on both windows.
        """
        if components is None:
            return self
        scaled = self.rescaled()
        pca = PCA.fit(scaled.pooled if symmetric else scaled.reference, components)
        exponent = scaled.exponent - self.exponent
        reference, current = (np.ldexp(pca.transform(window), exponent) for window in (scaled.reference, scaled.current))
        return replace(self, reference=reference, current=current)

    def at(self, *path: int | str) -> "Windows":
        """The windows with random draws at another place."""
        return replace(self, place=(*self.place, *path))

    def flaw(self) -> str | None:
        """Reason why the windows cannot be compared; None where they can."""
        for name, window in (("reference", self.reference), ("current", self.current)):
            if len(window) < LEAST:
                return f"the {name} window has {len(window)} of at least {LEAST} samples"
            broken = int((~np.isfinite(window)).any(axis=1).sum())
            if broken:
                return f"{broken} of {len(window)} samples of the {name} window have a feature that is NaN or infinite"
        return "samples have no features" if self.width == 0 else None


def as_features(window: npt.ArrayLike, name: str) -> Features:
    """Features ``float[n, d]`` of a numeric array: float32 stays, other types become float64; one dimension is one feature.

    Raises ``WrongShape`` for more than two dimensions, and ``TypeError`` for values that are not numeric.
    """
    array: npt.NDArray[Any] = np.asarray(window)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise WrongShape(["n", "d"], array.shape, what=f"the features of the {name} window")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"the features of the {name} window must be numbers, not {array.dtype}")
    return array if array.dtype == np.float32 else array.astype(np.float64, copy=False)


def extreme_exponent(spread: float) -> int:
    """Power of two of a spread far from 1, such that ``spread / 2**exponent`` lies in [1/2, 1); 0 for usual spreads.

    >>> extreme_exponent(3.0), extreme_exponent(2.0**100), extreme_exponent(0.0)
    (0, 101, 0)
    """
    exponent = math.frexp(spread)[1]
    return exponent if abs(exponent) > _USUAL else 0


def at_unit_scale(values: Float64) -> Float64:
    """Columns of ``float64[N, d]``, those of an extreme spread shifted to begin at 0 and divided by a power of two."""
    low, high = values.min(axis=0), values.max(axis=0)
    exponents = np.array([extreme_exponent(spread) for spread in (high / 2 - low / 2).tolist()])
    if not exponents.any():
        return values
    offset = np.where(exponents < 0, low, 0.0)
    return np.asarray(np.ldexp(values - offset, -exponents))


def _draw(window: Features, size: int, rng: np.random.Generator) -> Features:
    if len(window) <= size:
        return window
    return window[np.sort(rng.choice(len(window), size, replace=False))]


def standardized(pooled: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float64]:
    """Columns with mean 0 and deviation 1 over both windows, ``float64[N, d]``; constant columns become 0.

    Both windows take part, so that a permutation test treats them alike.
    """
    values = at_unit_scale(pooled.astype(np.float64))
    centered = values - values.mean(axis=0)
    deviation = centered.std(axis=0)
    constant = values.max(axis=0) == values.min(axis=0)
    return np.asarray(np.where(constant, 0.0, centered) / np.where(constant | (deviation == 0), 1.0, deviation))
