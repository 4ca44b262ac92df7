"""Fréchet distance between Gaussians fitted to both windows (DriftLens, Greco et al., arXiv 2406.17813)."""

import numpy as np
import numpy.typing as npt

from modyn_dagster.spec.triggers.drift import FrechetMetric
from modyn_dagster.triggering.drift.score import Score, permutation_p_value, restored, split_indicators
from modyn_dagster.triggering.drift.windows import Float64, Windows

_ROWS = 1_024


def frechet(spec: FrechetMetric, windows: Windows, *, p_value: bool) -> Score:
    """Fréchet distance ``|μ_r - μ_c|² + tr(Σ_r + Σ_c - 2 (Σ_r Σ_c)^½)`` on the leading principal components.

    The distance is invariant to a shift and a rotation of both windows. Without drift it lies above 0, further for smaller
    windows; compare it with earlier scores or take its p-value.

    Args:
        spec: number of components, permutations.
        windows: reference and current window.
        p_value: compute the p-value by permutation too.

    >>> rng = np.random.default_rng(0)
    >>> windows = Windows(rng.normal(size=(60, 2)), rng.normal(1.0, size=(60, 2)))
    >>> score = frechet(FrechetMetric(metric="frechet"), windows, p_value=True)
    >>> round(score.value, 3), round(score.p_value, 3)
    (1.284, 0.005)
    """
    reduced = windows.rescaled().reduced(min(spec.components, windows.width), symmetric=p_value)
    samples = reduced.pooled - reduced.pooled.mean(axis=0)
    members = split_indicators(windows.n, windows.m, spec.permutations if p_value else 0, windows.rng("permutations"))
    statistics = gaussian_distances(samples, members)
    p = float(permutation_p_value(statistics)) if p_value else None
    return Score(restored(float(statistics[0]), 2 * reduced.exponent), p, {"components": reduced.width})


def gaussian_distances(samples: Float64, members: npt.NDArray[np.uint8]) -> Float64:
    """Distance of the two Gaussians of every split, ``float64[P]``, from ``float64[N, k]`` and ``uint8[N, P]``."""
    count, total = members[:, 0].sum(dtype=np.int64), len(members)
    weights = members.T.astype(np.float64)
    sums = weights @ samples
    squares = _moments(samples, weights)
    all_sums, all_squares = samples.sum(axis=0), samples.T @ samples
    return np.array(
        [
            _distance(
                _gaussian(sums[p], squares[p], count),
                _gaussian(all_sums - sums[p], all_squares - squares[p], total - count),
            )
            for p in range(len(weights))
        ]
    )


def _moments(samples: Float64, weights: Float64) -> Float64:
    """Sums of ``x xᵀ`` over the reference of every split, ``float64[P, k, k]``, by one product per block of samples."""
    splits, k = len(weights), samples.shape[1]
    upper = np.triu_indices(k)
    sums = np.zeros((splits, len(upper[0])))
    for start in range(0, len(samples), _ROWS):
        rows = samples[start : start + _ROWS]
        sums += weights[:, start : start + _ROWS] @ (rows[:, upper[0]] * rows[:, upper[1]])
    square = np.empty((splits, k, k))
    square[:, upper[0], upper[1]] = sums
    square[:, upper[1], upper[0]] = sums
    return square


def _gaussian(sums: Float64, squares: Float64, count: int) -> tuple[Float64, Float64]:
    mean = sums / count
    return mean, (squares - count * np.outer(mean, mean)) / (count - 1)


def _distance(one: tuple[Float64, Float64], other: tuple[Float64, Float64]) -> float:
    root = _root(one[1])
    # Σ_r Σ_c has the eigenvalues of the symmetric product.
    eigenvalues = np.linalg.eigvalsh(root @ other[1] @ root)
    shared = np.sqrt(np.maximum(eigenvalues, 0.0)).sum()
    squared = float(np.square(one[0] - other[0]).sum() + np.trace(one[1]) + np.trace(other[1]) - 2 * shared)
    # Rounding may put the distance of two equal Gaussians just below 0.
    return max(0.0, squared)


def _root(covariance: Float64) -> Float64:
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
