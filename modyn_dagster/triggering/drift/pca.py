"""Principal components of one window, to project others on."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PCA:
    """``mean float64[d]`` and orthonormal ``axes float64[d, k]`` in order of falling variance."""

    mean: Float64
    axes: Float64

    @classmethod
    def fit(cls, samples: npt.NDArray[np.floating[Any]], components: int) -> Self:
        """The leading components of ``float[n, d]``; at most ``min(n - 1, d)`` exist, and at least one is kept."""
        values = samples.astype(np.float64)
        mean = values.mean(axis=0)
        centered = values - mean
        kept = max(1, min(components, len(values) - 1, values.shape[1]))
        if len(values) >= values.shape[1]:
            axes = np.linalg.eigh(centered.T @ centered)[1][:, ::-1]
        else:
            # The singular vectors of a few long rows come cheaper than the eigenvectors of their covariance.
            axes = np.linalg.svd(centered, full_matrices=False)[2].T
        return cls(mean, _with_fixed_signs(axes[:, :kept]))

    def transform(self, samples: npt.NDArray[np.floating[Any]]) -> Float64:
        """Coordinates of ``float[n, d]`` on the axes, ``float64[n, k]``."""
        return np.asarray((samples.astype(np.float64) - self.mean) @ self.axes)


def _with_fixed_signs(axes: Float64) -> Float64:
    """An axis and its opposite are equally good; the one whose largest entry is positive is taken."""
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])]
    return np.asarray(axes * np.where(largest < 0, -1.0, 1.0))
