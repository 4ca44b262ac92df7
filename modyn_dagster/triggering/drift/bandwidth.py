"""The median heuristic: a kernel as wide as samples are usually apart."""

from collections.abc import Iterable, Sequence
from math import gcd
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.triggering.drift.pair_sums import Block, half_squares
from modyn_dagster.triggering.drift.windows import Windows

if TYPE_CHECKING:
    import torch

#: Points whose distances the median is taken of.
POINTS: Final = 2_000
#: Rows of the blocks of distances: fewer waste less below the diagonal, more cost fewer calls.
BLOCK: Final = 1_000
_BRACKET: Final = 20_000
#: Squared distances below this share of the largest squared norm have lost digits that matter in float32.
_PRECISE: Final = 2e-3

Values = npt.NDArray[np.floating[Any]]


def median_bandwidth(windows: Windows) -> float | None:
    """Sigma with ``2 sigma²`` the median squared distance of two pooled samples (Gretton et al., JMLR 2012, §8).

    At most 2,000 pooled samples take part, drawn at random. Where half of the pairs or more are equal the median is that of the
    others; None when all samples are equal.
    """
    import torch

    pooled = windows.pooled
    if len(pooled) > POINTS:
        pooled = pooled[windows.rng("bandwidth").choice(len(pooled), POINTS, replace=False)]
    samples = torch.from_numpy(pooled).to(windows.device)
    return bandwidth_of(half_squares(samples, BLOCK, absent=-np.inf, keep=True), samples)


def bandwidth_of(blocks: Iterable[Block], samples: "torch.Tensor") -> float | None:
    """The same of ``half_squares(samples, ..., absent=-inf, keep=True)``."""
    import torch

    values = [block.cpu().numpy() for _, _, block in blocks]
    largest = float((samples - samples.mean(dim=0)).square().sum(dim=1).max())
    square = _median_square(values, len(samples))
    if samples.dtype == torch.float32 and square < _PRECISE * largest:
        # Far samples leave too few digits to near ones.
        samples = samples.double()
        return bandwidth_of(half_squares(samples, BLOCK, absent=-np.inf, keep=True), samples)
    nothing = 16 * torch.finfo(samples.dtype).eps * largest
    if square <= nothing:
        squares = -2 * np.concatenate([part[np.isfinite(part)] for part in values])
        apart = squares[squares > nothing]
        if len(apart) == 0:
            return None
        square = element_of_rank([apart], (len(apart) - 1) // 2)
    return float(np.sqrt(square / 2))


def _median_square(values: Sequence[Values], n: int) -> float:
    """The lower median of squared distances from their negative halves; what is absent is -inf, so ranks count from above."""
    pairs = n * (n - 1) // 2
    return -2 * element_of_rank(values, sum(part.size for part in values) - 1 - (pairs - 1) // 2)


def element_of_rank(parts: Sequence[Values], rank: int) -> float:
    """The element of this rank, from 0, of all parts together, none of them NaN.

    A sorted sample of the values brackets it, so that only the few inside the bracket are sorted: four times as fast on
    millions as ``np.partition``, which finds it where the bracket misses.
    """
    flat = [part.reshape(-1) for part in parts]
    total = sum(len(part) for part in flat)
    step = max(1, total // _BRACKET)
    # Steps that divide a row's length would look at a few columns only.
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
