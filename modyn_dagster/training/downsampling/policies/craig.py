"""Coresets whose weighted gradients approximate the gradient of the pool."""

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
    """CRAIG coreset: facility location on distances between gradients.

    A member's weight is the number of samples nearest to it, so the weights sum to ``n``. The policy runs per class where
    labels are given. Scaling all gradients by one factor changes nothing.

    Args:
        greedy: ``naive``, ``lazy`` (the same picks, faster) or ``stochastic``.
        epsilon: loss of the guarantee that stochastic greedy may cause.
        block_bytes: memory for distances at any time.

    >>> from modyn_dagster.training.downsampling import select
    >>> gradients = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9], [0.0, 1.1]]
    >>> indices, weights = select("craig", gradients=gradients, k=2, seed=0)
    >>> indices.tolist(), weights.tolist()
    ([3, 0], [3.0, 2.0])

    Source: Mirzasoleiman, Bilmes and Leskovec, Coresets for Data-efficient Training, ICML 2020, algorithm 1.
    """

    greedy: Strategy = "lazy"
    epsilon: float = 0.01
    block_bytes: int = BLOCK_BYTES

    needs: ClassVar[frozenset[str]] = frozenset({"gradients"})
    by_class: ClassVar[bool] = True

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Choose the coreset."""
        gradients = pool.sample_gradients()
        objective = Coverage(Similarity(gradients, "euclidean", block_bytes=self.block_bytes))
        indices = torch.from_numpy(greedy(objective, k, self.greedy, pool.rng(seed), epsilon=self.epsilon))
        return Chosen(indices, cluster_sizes(gradients, indices, block_bytes=self.block_bytes), estimates=True)


def cluster_sizes(features: Tensor, centres: Tensor, *, block_bytes: int) -> Tensor:
    """Count the rows of ``float[n, d]`` nearest to each centre, ``float64[k]``. A centre is nearest to itself."""
    rows, squares = prepared(features)
    n = len(rows)
    nearest = torch.full((n,), torch.inf, dtype=rows.dtype, device=rows.device)
    owner = torch.zeros(n, dtype=torch.int64, device=rows.device)
    block = max(1, block_bytes // (n * rows.element_size()))
    for start in range(0, len(centres), block):
        lowest, centre = distances(rows, squares, centres[start : start + block]).min(0)
        closer = lowest < nearest
        nearest = torch.where(closer, lowest, nearest)
        owner = torch.where(closer, centre + start, owner)
    owner[centres] = torch.arange(len(centres), device=owner.device)
    return torch.bincount(owner.cpu(), minlength=len(centres)).double()
