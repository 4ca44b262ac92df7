"""Random subsets: uniform, and repeated every epoch (RS2; Okanovic et al., ICLR 2024)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch

from modyn_dagster.randomness import rng_for
from modyn_dagster.training.downsampling.pool import Chosen, Pool


@dataclass(frozen=True)
class Uniform:
    """``k`` different samples, each with the same probability; weights ``n / k``."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Draw."""
        indices = pool.rng(seed).choice(pool.n, k, replace=False)
        return Chosen(torch.from_numpy(indices), torch.full((k,), pool.n / k, dtype=torch.float64), estimates=True)


@dataclass(frozen=True)
class RS2:
    """A fresh uniform subset every epoch, whatever earlier ones were; no sample twice inside one. Weights ``n / k``."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """The subset of the pool's epoch."""
        return _weighted(pool.rng(seed).choice(pool.n, k, replace=False), pool.n)


@dataclass(frozen=True)
class RS2WithoutReplacement:
    """Epochs walk through permutations in blocks of ``k``: every sample is used once before any is used again.

    Where ``k`` does not divide ``n``, the block that reaches the end of a permutation goes on in the next one, which begins
    with samples that the block does not have yet: no tail is dropped and no block holds a sample twice. Weights ``n / k``.
    """

    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """The block of the pool's epoch."""
        return _weighted(block(pool.n, k, seed, pool.epoch), pool.n)


def block(n: int, k: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Positions ``epoch * k`` to ``(epoch + 1) * k`` of the walk, ``int64[k]``."""
    start = epoch * k
    last = (start + k - 1) // n
    walk = rng_for(seed, "rs2", 0).permutation(n)
    found = [_part(walk, 0, n, start, k)]
    for number in range(1, last + 1):
        # What the block across the border has already.
        inside = number * n % k
        following = rng_for(seed, "rs2", number).permutation(n)
        if inside:
            taken = np.isin(following, walk[n - inside :])
            late = np.flatnonzero(~taken)[k - inside :]
            # The first of the others complete that block; everyone else keeps the order.
            head = np.flatnonzero(~taken)[: k - inside]
            walk = following[np.concatenate([head, np.sort(np.concatenate([np.flatnonzero(taken), late]))])]
        else:
            walk = following
        found.append(_part(walk, number, n, start, k))
    return np.concatenate(found)


def _part(walk: npt.NDArray[np.int64], number: int, n: int, start: int, k: int) -> npt.NDArray[np.int64]:
    """Part of permutation ``number`` that belongs to the block beginning at ``start``."""
    return walk[max(0, start - number * n) : max(0, start + k - number * n)]


def _weighted(indices: npt.NDArray[np.int64], n: int) -> Chosen:
    weights = torch.full((len(indices),), n / len(indices), dtype=torch.float64)
    return Chosen(torch.from_numpy(indices), weights, estimates=True)
