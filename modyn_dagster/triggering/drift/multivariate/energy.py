"""Energy distance (Székely & Rizzo, Journal of Statistical Planning and Inference 2013)."""

from modyn_dagster.spec.triggers.drift import EnergyMetric
from modyn_dagster.triggering.drift.pair_sums import half_squares, pair_sums
from modyn_dagster.triggering.drift.score import Score, permutation_p_value, restored, split_indicators
from modyn_dagster.triggering.drift.windows import Windows


def energy(spec: EnergyMetric, windows: Windows, *, p_value: bool) -> Score:
    """Energy distance ``2 E|X - Y| - E|X - X'| - E|Y - Y'|`` over pairs of different samples.

    The estimate is unbiased, so 0 on average without drift. The distance is the MMD of the kernel ``-|x - y|``. It is invariant
    to a shift and a rotation of both windows, and scales with them.

    Args:
        spec: block size, permutations.
        windows: reference and current window.
        p_value: compute the p-value by permutation too.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> windows = Windows(rng.normal(size=(60, 2)), rng.normal(1.0, size=(60, 2)))
    >>> score = energy(EnergyMetric(metric="energy"), windows, p_value=True)
    >>> round(score.value, 3), round(score.p_value, 3)
    (0.488, 0.005)
    """
    import torch

    windows = windows.rescaled()
    # In float32 the square root would magnify the rounding of small distances.
    pooled = torch.from_numpy(windows.pooled).to(windows.device, torch.float64)
    halves = half_squares(pooled, spec.block, absent=0.0)
    distances = ((i, j, values.mul_(-2).clamp_min_(0).sqrt_().neg_()) for i, j, values in halves)
    members = split_indicators(windows.n, windows.m, spec.permutations if p_value else 0, windows.rng("permutations"))
    statistics = pair_sums(distances, members).difference(windows.n, windows.m)
    p = float(permutation_p_value(statistics)) if p_value else None
    return Score(restored(float(statistics[0]), windows.exponent), p)
