"""Maximum mean discrepancy with an RBF kernel (Gretton et al., JMLR 2012)."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from modyn_dagster.spec.triggers.drift import MMDMetric
from modyn_dagster.triggering.drift.bandwidth import BLOCK, POINTS, bandwidth_of, median_bandwidth
from modyn_dagster.triggering.drift.pair_sums import Block, PairSums, feature_sums, half_squares, pair_sums
from modyn_dagster.triggering.drift.score import Indicators, Score, permutation_p_value, split_indicators
from modyn_dagster.triggering.drift.windows import Windows, extreme_exponent

if TYPE_CHECKING:
    import torch

#: Largest number of samples that is computed in float64: it costs little there, and keeps ties between permutations.
_SMALL: Final = 512
#: Squared norms in squared bandwidths up to which float32 exponents have errors of at most 1e-4, and 1e-7 on average.
_FAR: Final = 1_000.0


@dataclass(frozen=True, slots=True)
class _Scaled:
    """Bandwidth, and blocks of half squares left over from its computation; None where they are still to be computed."""

    bandwidth: float | None
    blocks: list[Block] | None = None


def mmd(spec: MMDMetric, windows: Windows, *, p_value: bool) -> Score:
    """Unbiased squared MMD, with mean 0 without drift; it may be negative (Gretton et al., JMLR 2012, eq. 3).

    With ``k(x, y) = exp(-|x - y|² / (2 sigma²))`` the statistic is the mean of k over pairs of different samples inside the
    reference, plus the mean inside the current window, minus twice the mean across. It is invariant to a shift of both windows,
    and with the median heuristic to their scale.

    Args:
        spec: bandwidth, number of random features, permutations.
        windows: reference and current window.
        p_value: compute the p-value by permutation too.

    >>> rng = np.random.default_rng(0)
    >>> windows = Windows(rng.normal(size=(60, 2)), rng.normal(1.0, size=(60, 2)))
    >>> score = mmd(MMDMetric(metric="mmd"), windows, p_value=True)
    >>> round(score.value, 3), round(score.p_value, 3)
    (0.121, 0.005)
    """
    windows = windows.rescaled()
    samples = _centered(windows)
    scaled = _scale(spec, windows, samples)
    if scaled.bandwidth is None:
        return Score(0.0, 1.0 if p_value else None, {"why": "all samples are equal"})
    members = split_indicators(windows.n, windows.m, spec.permutations if p_value else 0, windows.rng("permutations"))
    if spec.random_features is not None:
        rng = windows.rng("random features")
        sums = feature_sums(samples, scaled.bandwidth, spec.random_features, members, rng)
    else:
        sums = _exact_sums(spec, samples, scaled.bandwidth, scaled.blocks, members)
    statistics = sums.difference(windows.n, windows.m)
    p = float(permutation_p_value(statistics)) if p_value else None
    return Score(float(statistics[0]), p, {"bandwidth": math.ldexp(scaled.bandwidth, windows.exponent)})


def _centered(windows: Windows) -> "torch.Tensor":
    """Pooled samples around their mean; few samples in float64."""
    import torch

    pooled = windows.pooled
    centered = pooled - pooled.mean(axis=0, dtype=np.float64).astype(pooled.dtype)
    dtype = np.float32 if len(pooled) > _SMALL else np.float64
    return torch.from_numpy(centered.astype(dtype, copy=False)).to(windows.device)


def _scale(spec: MMDMetric, windows: Windows, samples: "torch.Tensor") -> _Scaled:
    if spec.bandwidth is not None:
        bandwidth = math.ldexp(spec.bandwidth, -windows.exponent)
        if windows.exponent and extreme_exponent(bandwidth):
            raise FloatingPointError(f"bandwidth {spec.bandwidth} cannot tell apart samples of this scale")
        return _Scaled(bandwidth)
    if spec.random_features is None and len(samples) <= POINTS:
        # The median is over all distances, so that their blocks serve the kernel too.
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
        # Rounding may put the exponent of two equal samples just above 0.
        yield i, j, halves.mul_(bandwidth**-2).clamp_max_(0).exp_()
