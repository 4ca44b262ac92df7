"""Coresets whose weighted gradients stand for everyone's."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from modyn_dagster.training.downsampling.pool import Chosen, Pool
from modyn_dagster.training.downsampling.solvers.distances import distances, prepared
from modyn_dagster.training.downsampling.solvers.greedy import Coverage, Strategy, greedy
from modyn_dagster.training.downsampling.solvers.similarity import BLOCK_BYTES, Similarity


@dataclass(frozen=True)
class CRAIG:
    """Facility location on the distances of gradients; each member weighs as many as are nearest to it.

    Mirzasoleiman, Bilmes, Leskovec, ICML 2020, algorithm 1, per class where labels are given. The weights sum to ``n``
    exactly; nothing changes when all gradients are scaled.

    Args:
        greedy: ``naive``, ``lazy`` (the same picks, faster) or ``stochastic``.
        epsilon: of stochastic greedy.
        block_bytes: distances in memory at once.
    """

    greedy: Strategy = "lazy"
    epsilon: float = 0.01
    block_bytes: int = BLOCK_BYTES

    needs: ClassVar[frozenset[str]] = frozenset({"gradients"})
    by_class: ClassVar[bool] = True

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """The coreset."""
        gradients = pool.sample_gradients()
        objective = Coverage(Similarity(gradients, "euclidean", block_bytes=self.block_bytes))
        found = greedy(objective, k, self.greedy, pool.rng(seed), epsilon=self.epsilon)
        indices = torch.from_numpy(found)
        return Chosen(indices, cluster_sizes(gradients, indices, block_bytes=self.block_bytes), estimates=True)


def cluster_sizes(features: Tensor, centres: Tensor, *, block_bytes: int) -> Tensor:
    """Count the rows of ``float[n, d]`` nearest to each centre, ``float64[k]``; a centre is nearest to itself."""
    found, squares = prepared(features)
    n = len(found)
    nearest = torch.full((n,), torch.inf, dtype=found.dtype, device=found.device)
    owner = torch.zeros(n, dtype=torch.int64, device=found.device)
    block = max(1, block_bytes // (n * found.element_size()))
    for start in range(0, len(centres), block):
        lowest, which = distances(found, squares, centres[start : start + block]).min(0)
        closer = lowest < nearest
        nearest = torch.where(closer, lowest, nearest)
        owner = torch.where(closer, which + start, owner)
    owner[centres] = torch.arange(len(centres), device=owner.device)
    return torch.bincount(owner.cpu(), minlength=len(centres)).double()
