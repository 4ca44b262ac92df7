"""Median heuristic: bandwidth of a kernel from the median distance of samples."""

from collections.abc import Iterable, Sequence
from math import gcd
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.triggering.drift.pair_sums import Block, half_squares
from modyn_dagster.triggering.drift.windows import Windows

if TYPE_CHECKING:
    import torch

#: Number of samples whose distances the median is taken of.
POINTS: Final = 2_000
#: Rows of the blocks of distances: small blocks waste less below the diagonal, large ones take fewer calls.
BLOCK: Final = 1_000
_BRACKET: Final = 20_000
#: Share of the largest squared norm below which squared distances in float32 have too few digits.
_PRECISE: Final = 2e-3

Values = npt.NDArray[np.floating[Any]]


def median_bandwidth(windows: Windows) -> float | None:
    """Sigma such that ``2 sigma²`` is the median squared distance of two pooled samples (Gretton et al., JMLR 2012, §8).

    At most 2,000 pooled samples take part, drawn at random. Where half of the pairs or more are equal the median is over the
    other pairs; None where all samples are equal.

    >>> round(median_bandwidth(Windows(np.array([[0.0], [1.0]]), np.array([[3.0], [7.0]]))), 3)
    2.121
    """
    import torch

    pooled = windows.pooled
    if len(pooled) > POINTS:
        pooled = pooled[windows.rng("bandwidth").choice(len(pooled), POINTS, replace=False)]
    samples = torch.from_numpy(pooled).to(windows.device)
    return bandwidth_of(half_squares(samples, BLOCK, absent=-np.inf, keep=True), samples)


def bandwidth_of(blocks: Iterable[Block], samples: "torch.Tensor") -> float | None:
    """Bandwidth of ``half_squares(samples, ..., absent=-inf, keep=True)``, as ``median_bandwidth``."""
    import torch

    values = [block.cpu().numpy() for _, _, block in blocks]
    largest = float((samples - samples.mean(dim=0)).square().sum(dim=1).max())
    square = _median_square(values, len(samples))
    if samples.dtype == torch.float32 and square < _PRECISE * largest:
        # Far samples leave too few digits for the distances of near ones.
        samples = samples.double()
        return bandwidth_of(half_squares(samples, BLOCK, absent=-np.inf, keep=True), samples)
    rounding = 16 * torch.finfo(samples.dtype).eps * largest
    if square <= rounding:
        squares = -2 * np.concatenate([part[np.isfinite(part)] for part in values])
        apart = squares[squares > rounding]
        if len(apart) == 0:
            return None
        square = element_of_rank([apart], (len(apart) - 1) // 2)
    return float(np.sqrt(square / 2))


def _median_square(values: Sequence[Values], n: int) -> float:
    """Lower median of squared distances from their negative halves; absent pairs are -inf, so that ranks count from above."""
    pairs = n * (n - 1) // 2
    return -2 * element_of_rank(values, sum(part.size for part in values) - 1 - (pairs - 1) // 2)


def element_of_rank(parts: Sequence[Values], rank: int) -> float:
    """Element of a rank, from 0, of all parts together, without NaN.

    A sorted sample of the values brackets the element, so that few values are partitioned: four times as fast on millions of
    values as ``np.partition`` of all of them, which takes over where the bracket misses.

    >>> element_of_rank([np.array([5.0, 1.0]), np.array([3.0])], rank=1)
    3.0
    """
    flat = [part.reshape(-1) for part in parts]
    total = sum(len(part) for part in flat)
    step = max(1, total // _BRACKET)
    # A step that shares a divisor with the row length would sample a few columns only.
    while any(part.ndim > 1 and gcd(step, part.shape[1]) > 1 for part in parts):
        step += 1
    sample = np.sort(np.concatenate([part[::step] for part in flat]))
    middle, width = rank * len(sample) // total, 4 * int(np.sqrt(len(sample))) + 1
    low, high = sample[max(0, middle - width)], sample[min(len(sample) - 1, middle + width)]
    below = sum(int(np.count_nonzero(part < low)) for part in flat)
    inside = np.concatenate([part[(part >= low) & (part <= high)] for part in flat])
    if not below <= rank < below + len(inside):
        inside, below = np.concatenate(flat), 0
    return float(np.partition(inside, rank - below)[rank - below])
