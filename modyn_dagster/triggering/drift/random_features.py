"""Random Fourier features: a kernel as a product of a few hundred features (Rahimi & Recht, NIPS 2007)."""

from typing import TYPE_CHECKING, Final

import numpy as np

from modyn_dagster.triggering.drift.pairwise import PairSums
from modyn_dagster.triggering.drift.permutations import Indicators

if TYPE_CHECKING:
    import torch

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
