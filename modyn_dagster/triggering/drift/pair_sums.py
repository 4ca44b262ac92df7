"""Sums of a kernel over all pairs of samples, for many splits at once: exact in bounded memory, or by random features."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from modyn_dagster.triggering.drift.score import Indicators
from modyn_dagster.triggering.drift.windows import Float64

if TYPE_CHECKING:
    import torch


#: Block of a symmetric matrix, on or above the diagonal: first row, first column, values.
Block = tuple[int, int, "torch.Tensor"]


@dataclass(frozen=True, slots=True)
class PairSums:
    """Sums of ``k(i, j)`` over ordered pairs i != j, one for each split.

    Attributes:
        within_reference: both samples in the reference.
        within_current: both samples in the current window.
        across: the first sample in the reference, the second in the current window.
    """

    within_reference: Float64
    within_current: Float64
    across: Float64

    @classmethod
    def of(cls, both: Float64, one: Float64, all_pairs: float) -> "PairSums":
        """Sums from those over pairs with both samples in the reference, with the first one there, and over all pairs."""
        return cls(both, all_pairs - 2 * one + both, one - both)

    def difference(self, n: int, m: int) -> Float64:
        """Means within both windows minus twice the mean across: unbiased MMD² (Gretton et al., JMLR 2012, eq. 3)."""
        return np.asarray(self.within_reference / (n * (n - 1)) + self.within_current / (m * (m - 1)) - 2 * self.across / (n * m))


def half_squares(samples: "torch.Tensor", block: int, *, absent: float, keep: bool = False) -> Iterator[Block]:
    """Halves ``-|x_i - x_j|² / 2`` of every pair i < j of ``[N, d]``, block by block.

    The samples are centred first, which keeps distances and reduces rounding.

    Args:
        samples: ``[N, d]``.
        block: largest number of rows and columns of a block.
        absent: value where i >= j.
        keep: give each block a buffer of its own; otherwise the next block overwrites it.
    """
    import torch

    centered = samples - samples.mean(dim=0)
    half = centered.square().sum(dim=1, keepdim=True) * -0.5
    ones, n, block = torch.ones_like(half), len(samples), min(block, len(samples))
    # One product of these gives the whole exponent.
    left, right = torch.cat([centered, half, ones], dim=1), torch.cat([centered, ones, half], dim=1)
    below = torch.ones(block, block, dtype=torch.bool, device=samples.device).tril_()
    buffer = torch.empty(0 if keep else block**2, device=samples.device, dtype=samples.dtype)
    for i in range(0, n, block):
        rows = left[i : i + block]
        for j in range(i, n, block):
            columns = right[j : j + block]
            size = len(rows) * len(columns)
            space = torch.empty(size, device=buffer.device, dtype=buffer.dtype) if keep else buffer[:size]
            values = torch.mm(rows, columns.T, out=space.view(len(rows), len(columns)))
            yield i, j, values.masked_fill_(below[: len(rows), : len(columns)], absent) if i == j else values


def pair_sums(blocks: Iterable[Block], members: Indicators) -> PairSums:
    """Sums over pairs for every column of ``uint8[N, P]`` indicators of the reference.

    Args:
        blocks: of the kernel, ``k(i, j)`` for i < j and 0 elsewhere. Each is multiplied with all indicators at once.
        members: 1 where a sample is in the reference.
    """
    import torch

    # A last column with every sample gives the sums of whole rows.
    everyone = torch.from_numpy(np.pad(members, ((0, 0), (0, 1)), constant_values=1))
    both = np.zeros(everyone.shape[1])
    one = both.copy()
    for i, j, values in blocks:
        rows = everyone[i : i + values.shape[0]].to(values.device, values.dtype)
        columns = everyone[j : j + values.shape[1]].to(values.device, values.dtype)
        products = values @ columns
        # Each pair is stored once and counts twice, as (i, j) and as (j, i).
        both += 2 * (rows * products).sum(dim=0, dtype=torch.float64).cpu().numpy()
        one += (rows * products[:, -1:] + products).sum(dim=0, dtype=torch.float64).cpu().numpy()
    return PairSums.of(both[:-1], one[:-1], float(both[-1]))


#: Number of rows whose features are in memory at once.
_ROWS: Final = 4_096


def feature_sums(
    samples: "torch.Tensor", bandwidth: float, features: int, members: Indicators, rng: np.random.Generator
) -> PairSums:
    """Sums over pairs of an approximate RBF kernel by random Fourier features (Rahimi & Recht, NeurIPS 2007).

    Half of the features are cosines and half sines of the same random projections. They vary less than shifted cosines
    (Sutherland & Schneider, UAI 2015), and a sample's kernel with itself is exactly 1, like the true one. Time and memory are
    linear in samples.

    Args:
        samples: ``[N, d]``.
        bandwidth: sigma of the kernel.
        features: number of features.
        members: ``uint8[N, P]``, 1 where a sample is in the reference, one column for each split.
        rng: draws the projections.
    """
    import torch

    count = max(1, features // 2)
    directions = rng.standard_normal((samples.shape[1], count)) / bandwidth
    projection = torch.from_numpy(directions).to(samples)
    centered = samples - samples.mean(dim=0)
    n, splits = members.shape
    indicators = torch.from_numpy(members).to(samples.device)
    total = torch.zeros(2 * count, device=samples.device, dtype=torch.float64)
    reference = torch.zeros(splits, 2 * count, device=samples.device, dtype=torch.float64)
    for start in range(0, n, _ROWS):
        angles = centered[start : start + _ROWS] @ projection
        waves = torch.cat([angles.cos(), angles.sin()], dim=1)
        reference += indicators[start : start + _ROWS].to(samples.dtype).T @ waves
        total += waves.sum(dim=0)
    # Sums over features turn sums of features into sums of kernel values; each sample's kernel with itself is taken off.
    both = reference.square().sum(dim=1) / count - indicators.sum(dim=0, dtype=torch.float64)
    one = reference @ total / count - indicators.sum(dim=0, dtype=torch.float64)
    everything = float(total.square().sum() / count) - n
    return PairSums.of(both.cpu().numpy(), one.cpu().numpy(), everything)
