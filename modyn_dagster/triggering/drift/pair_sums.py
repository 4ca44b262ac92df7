"""Sums of a kernel over all pairs of samples, exact or by random Fourier features, for many splits at once in bounded memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.triggering.drift.score import Indicators

if TYPE_CHECKING:
    import torch


Float64 = npt.NDArray[np.float64]

#: Values of a symmetric matrix: first row, first column, and a block of it, on or above the diagonal.
Block = tuple[int, int, "torch.Tensor"]


@dataclass(frozen=True, slots=True)
class PairSums:
    """Sums of ``k(i, j)`` over ordered pairs i != j, one per split: both in the reference, in the current window, one in each."""

    within_reference: Float64
    within_current: Float64
    across: Float64

    @classmethod
    def of(cls, both: Float64, one: Float64, all_pairs: float) -> "PairSums":
        """From sums over pairs with both samples in the reference, with the first in it, and over all pairs."""
        return cls(both, all_pairs - 2 * one + both, one - both)

    def difference(self, n: int, m: int) -> Float64:
        """The mean within either window minus twice the mean across: the unbiased MMD² (Gretton et al. 2012, eq. 3)."""
        return np.asarray(self.within_reference / (n * (n - 1)) + self.within_current / (m * (m - 1)) - 2 * self.across / (n * m))


def half_squares(samples: "torch.Tensor", block: int, *, absent: float, keep: bool = False) -> Iterator[Block]:
    """``-|x_i - x_j|² / 2`` of every pair i < j of ``[N, d]``, block by block; ``absent`` where i >= j.

    The samples are centred first: distances stay, and less is lost to rounding. Blocks have at most ``block`` rows and columns.
    All are made in one buffer, so that the next one overwrites it; with ``keep`` each has its own.
    """
    import torch

    centered = samples - samples.mean(dim=0)
    half = centered.square().sum(dim=1, keepdim=True) * -0.5
    ones, n, block = torch.ones_like(half), len(samples), min(block, len(samples))
    # One product of these makes the whole exponent.
    left, right = torch.cat([centered, half, ones], dim=1), torch.cat([centered, ones, half], dim=1)
    below = torch.ones(block, block, dtype=torch.bool, device=samples.device).tril_()
    held = torch.empty(0 if keep else block**2, device=samples.device, dtype=samples.dtype)
    for i in range(0, n, block):
        rows = left[i : i + block]
        for j in range(i, n, block):
            columns = right[j : j + block]
            size = len(rows) * len(columns)
            space = torch.empty(size, device=held.device, dtype=held.dtype) if keep else held[:size]
            values = torch.mm(rows, columns.T, out=space.view(len(rows), len(columns)))
            yield i, j, values.masked_fill_(below[: len(rows), : len(columns)], absent) if i == j else values


def pair_sums(blocks: Iterable[Block], members: Indicators) -> PairSums:
    """Sums over pairs for every column of ``uint8[N, P]`` indicators of the reference.

    Args:
        blocks: of the kernel, ``k(i, j)`` for i < j and 0 elsewhere. Each is multiplied with all indicators at once.
        members: 1 where a sample is in the reference.
    """
    import torch

    # A last column that holds every sample sums whole rows along the way.
    everyone = torch.from_numpy(np.pad(members, ((0, 0), (0, 1)), constant_values=1))
    both = np.zeros(everyone.shape[1])
    one = both.copy()
    for i, j, values in blocks:
        rows = everyone[i : i + values.shape[0]].to(values.device, values.dtype)
        columns = everyone[j : j + values.shape[1]].to(values.device, values.dtype)
        products = values @ columns
        # Each pair stands once and counts twice: (i, j) and (j, i).
        both += 2 * (rows * products).sum(dim=0, dtype=torch.float64).cpu().numpy()
        one += (rows * products[:, -1:] + products).sum(dim=0, dtype=torch.float64).cpu().numpy()
    return PairSums.of(both[:-1], one[:-1], float(both[-1]))


#: Rows whose features are held at once.
_ROWS: Final = 4_096


def feature_sums(
    samples: "torch.Tensor", bandwidth: float, features: int, members: Indicators, rng: np.random.Generator
) -> PairSums:
    """Sums over pairs of the RBF kernel's approximation, for every column of ``uint8[N, P]`` indicators of the reference.

    Half of the features are cosines and half sines of the same random projections: they vary less than shifted cosines
    (Sutherland & Schneider, UAI 2015), and a sample's kernel with itself is exactly 1, as the true one.
    Time and memory are linear in samples.
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
    # Summing over features turns sums of features into sums of kernel values; each sample's own is taken off.
    both = reference.square().sum(dim=1) / count - indicators.sum(dim=0, dtype=torch.float64)
    one = reference @ total / count - indicators.sum(dim=0, dtype=torch.float64)
    everything = float(total.square().sum() / count) - n
    return PairSums.of(both.cpu().numpy(), one.cpu().numpy(), everything)
