"""Samples by score: the highest ones, or random ones of given probabilities with their unbiased weights.

Weights of a random sample obey E[sum of w * v over the sample] = sum of v over the pool.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modyn_dagster.training.downsampling.pool import Chosen, Pool

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


def probabilities(scores: Float64, *, floor: float, asked_by: str) -> Float64:
    """Proportional to ``scores``, none below ``floor / n``: what can never be drawn cannot be weighted."""
    unusable = ~np.isfinite(scores) | (scores < 0)
    if unusable.any():
        first = int(np.argmax(unusable))
        raise ValueError(f"{asked_by}: the score of sample {first} is {scores[first]}, scores must be finite and at least 0")
    # The largest one first: sums of huge or tiny scores stay in range.
    largest = scores.max(initial=0)
    scaled = scores / largest if largest > 0 else np.ones_like(scores)
    raised = np.maximum(scaled / scaled.sum(), floor / len(scores))
    q: Float64 = raised / raised.sum()
    return q


def with_replacement(q: Float64, k: int, rng: np.random.Generator) -> tuple[Int64, Float64]:
    """``k`` independent draws by ``q`` with weights ``1 / (k q)`` (Hansen and Hurwitz 1943)."""
    ends = np.cumsum(q)
    drawn = np.searchsorted(ends, rng.random(k) * ends[-1], side="right")
    indices = np.minimum(drawn, len(q) - 1).astype(np.int64)
    return indices, 1 / (k * q[indices])


def without_replacement(q: Float64, k: int, rng: np.random.Generator) -> tuple[Int64, Float64]:
    """Exactly ``k`` different ones with weights ``1 / pi`` (Horvitz and Thompson 1952), drawn systematically."""
    pi = inclusion_probabilities(q, k)
    certain = np.flatnonzero(pi >= 1)
    others = rng.permutation(np.flatnonzero(pi < 1))
    rest = k - len(certain)
    if rest:
        ends = np.cumsum(pi[others])
        points = (rng.random() + np.arange(rest)) * (ends[-1] / rest)
        others = others[np.minimum(np.searchsorted(ends, points, side="right"), len(others) - 1)]
    indices = np.concatenate([certain, others[:rest]])
    return indices, 1 / pi[indices]


def inclusion_probabilities(q: Float64, k: int) -> Float64:
    """``min(1, c q)`` with ``c`` such that they sum to ``k``: whatever would exceed 1 is certain, the others share the rest.

    >>> inclusion_probabilities(np.array([0.7, 0.2, 0.1]), 2).round(6)
    array([1.      , 0.666667, 0.333333])
    """
    pi, certain = np.ones(len(q)), np.zeros(len(q), dtype=bool)
    while (rest := k - int(certain.sum())) > 0 and not certain.all():
        open_ = ~certain
        pi[open_] = rest * q[open_] / q[open_].sum()
        # A hair below 1 counts as certain: systematic draws could step over it or hit it twice.
        above = open_ & (pi >= 1 - 1e-9)
        if not above.any():
            return pi
        pi[above] = 1
        certain |= above
    return np.where(certain, pi, 0.0)


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
