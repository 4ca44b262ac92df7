"""Random subsets: one uniform draw, or a new subset in every epoch (RS2)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.training.downsampling.pool import Chosen, Pool


@dataclass(frozen=True)
class Uniform:
    """Uniform draw of ``k`` different samples, with weights ``n / k``. The policy has no options.

    >>> from modyn_dagster.training.downsampling import select
    >>> indices, weights = select("uniform", n=6, k=2, seed=0)
    >>> indices.tolist(), weights.tolist()
    ([5, 0], [3.0, 3.0])
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Draw the subset."""
        return _weighted(pool.rng(seed).choice(pool.n, k, replace=False), pool.n)


@dataclass(frozen=True)
class RS2(Uniform):
    """Repeated sampling of random subsets: a new uniform subset in every epoch, independent of earlier ones.

    >>> from modyn_dagster.training.downsampling import select
    >>> [select("rs2", n=6, k=2, epoch=epoch, seed=0)[0].tolist() for epoch in range(2)]
    [[4, 3], [2, 0]]

    Source: Okanovic et al., Repeated Random Sampling for Minimizing the Time-to-Accuracy of Learning, ICLR 2024.
    """


@dataclass(frozen=True)
class RS2WithoutReplacement:
    """Consecutive blocks of random permutations: every sample is used once before any is used again. Weights are ``n / k``.

    Where ``k`` does not divide ``n``, the block that reaches the end of a permutation goes on in the next one. That one begins
    with samples that the block lacks: no tail is dropped and no block holds a sample twice. The policy has no options.

    >>> from modyn_dagster.training.downsampling import select
    >>> [select("rs2_without_replacement", n=6, k=2, epoch=epoch, seed=0)[0].tolist() for epoch in range(3)]
    [[2, 4], [5, 1], [0, 3]]

    Source: Okanovic et al., Repeated Random Sampling for Minimizing the Time-to-Accuracy of Learning, ICLR 2024.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Return the block of the pool's epoch."""
        return _weighted(block(pool.n, k, seed, pool.epoch), pool.n)


def block(n: int, k: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Positions ``epoch * k`` to ``(epoch + 1) * k`` of the permutations in a row, ``int64[k]``."""
    start = epoch * k
    last = (start + k - 1) // n
    permutation = rng_for(seed, "rs2", 0).permutation(n)
    parts = [_part(permutation, 0, n, start, k)]
    for number in range(1, last + 1):
        # Number of samples that the block across the border has from the previous permutation.
        inside = number * n % k
        following = rng_for(seed, "rs2", number).permutation(n)
        if inside:
            taken = np.isin(following, permutation[n - inside :])
            late = np.flatnonzero(~taken)[k - inside :]
            # The first of the others complete that block; the rest keeps its order.
            head = np.flatnonzero(~taken)[: k - inside]
            permutation = following[np.concatenate([head, np.sort(np.concatenate([np.flatnonzero(taken), late]))])]
        else:
            permutation = following
        parts.append(_part(permutation, number, n, start, k))
    return np.concatenate(parts)


def _part(permutation: npt.NDArray[np.int64], number: int, n: int, start: int, k: int) -> npt.NDArray[np.int64]:
    """Part of permutation ``number`` that belongs to the block beginning at ``start``."""
    return permutation[max(0, start - number * n) : max(0, start + k - number * n)]


def _weighted(indices: npt.NDArray[np.int64], n: int) -> Chosen:
    weights = torch.full((len(indices),), n / len(indices), dtype=torch.float64)
    return Chosen(torch.from_numpy(indices), weights, estimates=True)
