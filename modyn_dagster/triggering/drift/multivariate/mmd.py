"""Maximum mean discrepancy with an RBF kernel (Gretton et al., JMLR 2012)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from modyn_dagster.spec.triggers.drift import MMDMetric
from modyn_dagster.triggering.drift.bandwidth import BLOCK, POINTS, bandwidth_of, median_bandwidth
from modyn_dagster.triggering.drift.pair_sums import Block, PairSums, feature_sums, half_squares, pair_sums
from modyn_dagster.triggering.drift.score import Indicators, Score, indicators, permutation_p_value
from modyn_dagster.triggering.drift.windows import Windows

if TYPE_CHECKING:
    import torch

#: Up to here float64 costs nothing worth mentioning, and ties between permutations of few samples stay ties.
_SMALL: Final = 512
#: Squared norms in bandwidths, up to which float32 exponents are good to 1e-4 at the very worst and 1e-7 on average.
_FAR: Final = 1_000.0


@dataclass(frozen=True, slots=True)
class _Scaled:
    """The bandwidth, and blocks of half squares that finding it has left; None where they are to be made."""

    bandwidth: float | None
    blocks: list[Block] | None = None


def mmd(spec: MMDMetric, windows: Windows, *, p_value: bool) -> Score:
    """The unbiased squared MMD, whose mean is 0 without drift and which may be negative.

    ``k(x, y) = exp(-|x - y|² / (2 sigma²))``; the statistic is the mean of k over pairs of different samples inside the
    reference, plus that inside the current window, minus twice that across. It does not change when both windows are
    shifted, and with the median heuristic not when they are scaled.
    """
    samples = _centered(windows)
    scaled = _scale(spec, windows, samples)
    if scaled.bandwidth is None:
        return Score(0.0, 1.0 if p_value else None, {"why": "all samples are equal"})
    members = indicators(windows.n, windows.m, spec.permutations if p_value else 0, windows.rng("permutations"))
    if spec.random_features is not None:
        rng = windows.rng("random features")
        sums = feature_sums(samples, scaled.bandwidth, spec.random_features, members, rng)
    else:
        sums = _exact_sums(spec, samples, scaled.bandwidth, scaled.blocks, members)
    statistics = sums.difference(windows.n, windows.m)
    p = float(permutation_p_value(statistics)) if p_value else None
    return Score(float(statistics[0]), p, {"bandwidth": scaled.bandwidth})


def _centered(windows: Windows) -> "torch.Tensor":
    """Pooled samples around their mean; few samples as float64."""
    import torch

    pooled = windows.pooled
    centered = pooled - pooled.mean(axis=0, dtype=np.float64).astype(pooled.dtype)
    dtype = np.float32 if len(pooled) > _SMALL else np.float64
    return torch.from_numpy(centered.astype(dtype, copy=False)).to(windows.device)


def _scale(spec: MMDMetric, windows: Windows, samples: "torch.Tensor") -> _Scaled:
    if spec.bandwidth is not None:
        return _Scaled(spec.bandwidth)
    if spec.random_features is None and len(samples) <= POINTS:
        # The distances that the median is taken of are all there are: they are kept.
        blocks = list(half_squares(samples, BLOCK, absent=-np.inf, keep=True))
        return _Scaled(bandwidth_of(blocks, samples), blocks)
    return _Scaled(median_bandwidth(windows))


def _exact_sums(
    spec: MMDMetric, samples: "torch.Tensor", bandwidth: float, blocks: Iterable[Block] | None, members: Indicators
) -> PairSums:
    import torch

    if samples.dtype == torch.float32 and float(samples.square().sum(dim=1).max()) > _FAR * bandwidth**2:
        samples, blocks = samples.double(), None
    if blocks is None:
        blocks = half_squares(samples, spec.block, absent=-np.inf)
    return pair_sums(_kernels(blocks, bandwidth), members)


def _kernels(blocks: Iterable[Block], bandwidth: float) -> Iterator[Block]:
    for i, j, halves in blocks:
        # Rounding may leave the exponent of two equal samples just above 0.
        yield i, j, halves.mul_(bandwidth**-2).clamp_max_(0).exp_()
