"""Least-squares density difference (Sugiyama et al., Neural Computation 2013)."""

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.spec.triggers.drift import LSDDMetric
from modyn_dagster.triggering.drift.bandwidth import median_bandwidth
from modyn_dagster.triggering.drift.score import Score, permutation_p_value, split_indicators
from modyn_dagster.triggering.drift.windows import Float64, Windows, standardized

#: Ridges from strong to weak; the first one that changes the estimate little is used.
_RIDGES: Final = tuple(4.0**-i for i in range(10))
#: Largest relative change of the estimate by the ridge (Bu et al., Pattern Recognition 2017, appendix A).
_CHANGE: Final = 0.2
_ROWS: Final = 4_096


def lsdd(spec: LSDDMetric, windows: Windows, *, p_value: bool) -> Score:
    """Estimate of ``∫ (p(x) - q(x))² dx`` on standardized columns, from Gaussians at sampled centers.

    The estimate is larger than the integral by the factor ``(π sigma²)^(d/2)``, which keeps it finite in many dimensions. It is
    invariant to a shift and a scale of columns. Without drift it lies above 0; compare it with earlier scores or take its
    p-value.

    Args:
        spec: number of centers, bandwidth, permutations.
        windows: reference and current window.
        p_value: compute the p-value by permutation too.

    >>> rng = np.random.default_rng(0)
    >>> windows = Windows(rng.normal(size=(60, 2)), rng.normal(1.0, size=(60, 2)))
    >>> score = lsdd(LSDDMetric(metric="lsdd"), windows, p_value=True)
    >>> round(score.value, 3), round(score.p_value, 3)
    (0.202, 0.005)
    """
    scaled = standardized(windows.pooled)
    same = replace(windows, reference=scaled[: windows.n], current=scaled[windows.n :])
    bandwidth = spec.bandwidth or median_bandwidth(same)
    if bandwidth is None:
        return Score(0.0, 1.0 if p_value else None, {"why": "all samples are equal"})
    sampled = windows.rng("centers").choice(len(scaled), min(spec.centers, len(scaled)), replace=False)
    centers = scaled[np.sort(sampled)]
    # The choice of the ridge uses the shuffled splits too, so that they are always drawn.
    members = split_indicators(windows.n, windows.m, spec.permutations, windows.rng("permutations"))
    differences = _mean_differences(scaled, centers, bandwidth, members)
    statistics, ridge = density_differences(differences, _gaussians(centers, centers, bandwidth * np.sqrt(2)))
    p = float(permutation_p_value(statistics)) if p_value else None
    return Score(float(statistics[0]), p, {"bandwidth": bandwidth, "ridge": ridge, "centers": len(centers)})


def density_differences(differences: Float64, overlaps: Float64) -> tuple[Float64, float]:
    """Estimate of every split, ``float64[P]``, and the ridge.

    Args:
        differences: ``float64[P, c]``, mean kernel to each center over the reference minus that over the current window.
        overlaps: ``float64[c, c]``, the integral of the product of two centers' Gaussians.
    """
    for ridge in _RIDGES:
        inverse = np.linalg.inv(overlaps + ridge * np.eye(len(overlaps)))
        weights = differences @ inverse
        linear = (differences * weights).sum(axis=1)
        square = (weights * (weights @ overlaps)).sum(axis=1)
        # All are zero where both windows have the same density at every center.
        change = 1 - square[linear > 0] / linear[linear > 0]
        if len(change) == 0 or change.mean() < _CHANGE:
            break
    return 2 * linear - square, ridge


def _mean_differences(samples: Float64, centers: Float64, bandwidth: float, members: npt.NDArray[np.uint8]) -> Float64:
    count, total = members[:, 0].sum(dtype=np.int64), len(members)
    reference = np.zeros((members.shape[1], len(centers)))
    everything = np.zeros(len(centers))
    for start in range(0, total, _ROWS):
        kernel = _gaussians(samples[start : start + _ROWS], centers, bandwidth)
        reference += members[start : start + _ROWS].T.astype(np.float64) @ kernel
        everything += kernel.sum(axis=0)
    return np.asarray(reference / count - (everything - reference) / (total - count))


def _gaussians(samples: Float64, centers: Float64, bandwidth: float) -> Float64:
    """Gaussians ``exp(-|x - c|² / (2 bandwidth²))``, ``float64[n, c]``."""
    squared = np.square(samples).sum(axis=1)[:, None] + np.square(centers).sum(axis=1) - 2 * samples @ centers.T
    return np.asarray(np.exp(-np.maximum(squared, 0.0) / (2 * bandwidth**2)))
