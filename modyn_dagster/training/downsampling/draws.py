"""Choices by score: the highest scores, or random draws with unbiased weights.

Weights of a random sample obey E[sum of w * v over the sample] = sum of v over the pool.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modyn_dagster.reproducibility.randomness import hash_keys
from modyn_dagster.training.downsampling.pool import Chosen, Pool

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]


def probabilities(scores: Float64, *, floor: float, asked_by: str) -> Float64:
    """Compute probabilities proportional to ``scores``, at least ``floor / n``. A probability of 0 has no unbiased weight."""
    unusable = ~np.isfinite(scores) | (scores < 0)
    if unusable.any():
        first = int(np.argmax(unusable))
        raise ValueError(f"{asked_by}: the score of sample {first} is {scores[first]}, scores must be finite and at least 0")
    # Division by the largest score first keeps sums of huge or tiny scores in range.
    largest = scores.max(initial=0)
    scaled = scores / largest if largest > 0 else np.ones_like(scores)
    raised = np.maximum(scaled / scaled.sum(), floor / len(scores))
    q: Float64 = raised / raised.sum()
    return q


def with_replacement(q: Float64, k: int, rng: np.random.Generator) -> tuple[Int64, Float64]:
    """Draw ``k`` independent samples by ``q``, with weights ``1 / (k q)`` (Hansen and Hurwitz 1943)."""
    ends = np.cumsum(q)
    drawn = np.searchsorted(ends, rng.random(k) * ends[-1], side="right")
    indices = np.minimum(drawn, len(q) - 1).astype(np.int64)
    return indices, 1 / (k * q[indices])


def without_replacement(q: Float64, k: int, rng: np.random.Generator) -> tuple[Int64, Float64]:
    """Draw exactly ``k`` different samples systematically, with weights ``1 / pi`` (Horvitz and Thompson 1952)."""
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
    """Inclusion probabilities ``min(1, c q)`` with ``c`` such that they sum to ``k``.

    >>> inclusion_probabilities(np.array([0.7, 0.2, 0.1]), 2).round(6)
    array([1.      , 0.666667, 0.333333])
    """
    pi, certain = np.ones(len(q)), np.zeros(len(q), dtype=bool)
    while (rest := k - int(certain.sum())) > 0 and not certain.all():
        uncertain = ~certain
        pi[uncertain] = rest * q[uncertain] / q[uncertain].sum()
        # Probabilities just below 1 count as certain: systematic draws could skip them or hit them twice.
        above = uncertain & (pi >= 1 - 1e-9)
        if not above.any():
            return pi
        pi[above] = 1
        certain |= above
    return np.where(certain, pi, 0.0)


def top(scores: Tensor, k: int, pool: Pool, seed: int) -> Chosen:
    """Choose the ``k`` highest of ``float[n]``, best first, with weight 1.

    Equal scores come in a random order of their keys, or of their places in a pool without keys; the seed decides on it.
    """
    values = scores.detach().to("cpu", torch.float64).numpy()
    require_numbers(values, pool.asked_by)
    rng = pool.rng(seed)
    if pool.keys is None:
        ties: npt.NDArray[Any] = rng.permutation(len(values))
    else:
        ties = hash_keys(pool.keys, int(rng.integers(2**63)))
    order = np.lexsort((ties, -values))
    return Chosen.plain(torch.from_numpy(order[:k].copy()))


def require_numbers(scores: npt.NDArray[np.float64], asked_by: str, *, finite: bool = False) -> None:
    """Check scores; ``ValueError`` names the first that is NaN, or infinite where ``finite``."""
    missing = ~np.isfinite(scores) if finite else np.isnan(scores)
    if missing.any():
        first = int(np.argmax(missing))
        raise ValueError(f"{asked_by}: the score of sample {first} is {'NaN' if np.isnan(scores[first]) else scores[first]}")
