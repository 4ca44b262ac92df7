"""The samples with the highest scores."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modyn_dagster.training.downsampling.pool import Chosen, Pool


def top(scores: Tensor, k: int, pool: Pool, seed: int) -> Chosen:
    """The ``k`` highest of ``float[n]``, best first, with weight 1; equal ones in an order that the seed decides."""
    found = scores.detach().to("cpu", torch.float64).numpy()
    require_numbers(found, pool.asked_by)
    order = np.lexsort((pool.rng(seed).permutation(len(found)), -found))
    return Chosen.plain(torch.from_numpy(order[:k].copy()))


def require_numbers(scores: npt.NDArray[np.float64], asked_by: str, *, finite: bool = False) -> None:
    """``ValueError`` names the first score that is NaN, or infinite where they must be finite."""
    missing = ~np.isfinite(scores) if finite else np.isnan(scores)
    if missing.any():
        first = int(np.argmax(missing))
        raise ValueError(f"{asked_by}: the score of sample {first} is {'NaN' if np.isnan(scores[first]) else scores[first]}")
