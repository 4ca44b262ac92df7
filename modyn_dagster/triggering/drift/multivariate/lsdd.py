"""Least-squares density difference (Sugiyama et al., Neural Computation 2013)."""

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.spec.triggers.drift import LSDDMetric
from modyn_dagster.triggering.drift.bandwidth import median_bandwidth
from modyn_dagster.triggering.drift.score import Float64, Score, indicators, permutation_p_value
from modyn_dagster.triggering.drift.windows import Windows, standardized

#: From strong to weak; the strongest is taken that changes the estimate little.
_RIDGES: Final = tuple(4.0**-i for i in range(10))
#: How much the ridge may change the estimate (Bu et al., Pattern Recognition 2017, appendix A).
_CHANGE: Final = 0.2
_ROWS: Final = 4_096


def lsdd(spec: LSDDMetric, windows: Windows, *, p_value: bool) -> Score:
    """An estimate of ``∫ (p(x) - q(x))² dx`` from Gaussians at sampled centers, of standardized columns.

    It is larger than the integral by the constant ``(π sigma²)^(d/2)``, which leaves it finite in many dimensions. It does not
    change when columns are shifted or scaled. Without drift it is above 0: compare it with earlier scores or take its p-value.
    """
    scaled = standardized(windows.pooled)
    same = replace(windows, reference=scaled[: windows.n], current=scaled[windows.n :])
    bandwidth = spec.bandwidth or median_bandwidth(same)
    if bandwidth is None:
        return Score(0.0, 1.0 if p_value else None, {"why": "all samples are equal"})
    chosen = windows.rng("centers").choice(len(scaled), min(spec.centers, len(scaled)), replace=False)
    centers = scaled[np.sort(chosen)]
    # The ridge is chosen over the shuffled splits too, so these are drawn in any case.
    members = indicators(windows.n, windows.m, spec.permutations, windows.rng("permutations"))
    differences = _mean_differences(scaled, centers, bandwidth, members)
    statistics, ridge = density_differences(differences, _gaussians(centers, centers, bandwidth * np.sqrt(2)))
    p = float(permutation_p_value(statistics)) if p_value else None
    return Score(float(statistics[0]), p, {"bandwidth": bandwidth, "ridge": ridge, "centers": len(centers)})


def density_differences(differences: Float64, overlaps: Float64) -> tuple[Float64, float]:
    """The estimate per split, ``float64[P]``, and the ridge.

    Args:
        differences: ``float64[P, c]``, mean kernel to each center over the reference minus that over the current window.
        overlaps: ``float64[c, c]``, the integral of the product of two centers' Gaussians.
    """
    for ridge in _RIDGES:
        inverse = np.linalg.inv(overlaps + ridge * np.eye(len(overlaps)))
        weights = differences @ inverse
        linear = (differences * weights).sum(axis=1)
        square = (weights * (weights @ overlaps)).sum(axis=1)
        # All zero: both windows look the same from every center.
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
    """``exp(-|x - c|² / (2 bandwidth²))``, ``float64[n, c]``."""
    squared = np.square(samples).sum(axis=1)[:, None] + np.square(centers).sum(axis=1) - 2 * samples @ centers.T
    return np.asarray(np.exp(-np.maximum(squared, 0.0) / (2 * bandwidth**2)))
