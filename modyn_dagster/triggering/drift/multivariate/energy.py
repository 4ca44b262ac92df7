"""Energy distance (Székely & Rizzo, J. Statistical Planning and Inference 2013)."""

from modyn_dagster.spec.triggers.drift import EnergyMetric
from modyn_dagster.triggering.drift.pair_sums import half_squares, pair_sums
from modyn_dagster.triggering.drift.score import Score, indicators, permutation_p_value
from modyn_dagster.triggering.drift.windows import Windows


def energy(spec: EnergyMetric, windows: Windows, *, p_value: bool) -> Score:
    """``2 E|X - Y| - E|X - X'| - E|Y - Y'|`` over pairs of different samples: unbiased, 0 on average without drift.

    It is the MMD of the kernel ``-|x - y|``. It does not change when both windows are shifted or turned, and scales with them.
    """
    import torch

    # In float32 the root would magnify the rounding of small distances.
    pooled = torch.from_numpy(windows.pooled).to(windows.device, torch.float64)
    halves = half_squares(pooled, spec.block, absent=0.0)
    distances = ((i, j, values.mul_(-2).clamp_min_(0).sqrt_().neg_()) for i, j, values in halves)
    members = indicators(windows.n, windows.m, spec.permutations if p_value else 0, windows.rng("permutations"))
    statistics = pair_sums(distances, members).difference(windows.n, windows.m)
    return Score(float(statistics[0]), float(permutation_p_value(statistics)) if p_value else None)
