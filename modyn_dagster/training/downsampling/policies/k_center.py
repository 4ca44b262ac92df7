"""Centres that cover the pool within a small radius."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from modyn_dagster.training.downsampling.pool import Chosen, Pool
from modyn_dagster.training.downsampling.solvers.distances import prepared


@dataclass(frozen=True)
class KCenter:
    """Greedy k-center: each pick is the sample farthest from the centres so far.

    The largest distance to a centre is at most twice the optimum. The first centre is ``selected`` or random. The policy has
    no options.

    >>> from modyn_dagster.training.downsampling import select
    >>> indices, _ = select("k_center", embeddings=[[0.0], [1.0], [2.0], [10.0]], selected=[0], k=1, seed=0)
    >>> indices.tolist()
    [3]

    Source: Gonzalez, Clustering to Minimize the Maximum Intercluster Distance, 1985; Sener and Savarese, Active Learning
    for Convolutional Neural Networks: A Core-Set Approach, ICLR 2018, algorithm 1.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"embeddings"})
    extends: ClassVar[bool] = True

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Choose the centres, in the order of picks."""
        features, squares = prepared(pool.features())
        # Squared distances to the nearest centre. Centres have -1: none is chosen again, even where all samples are equal.
        nearest = torch.full((pool.n,), torch.inf, dtype=features.dtype, device=features.device)
        members = [] if pool.selected is None else pool.selected.tolist()
        picks: list[int] = []
        for _ in range(len(members) + k):
            if len(picks) < len(members):
                pick = members[len(picks)]
            else:
                pick = int(torch.argmax(nearest)) if picks else int(pool.rng(seed).integers(pool.n))
            picks.append(pick)
            squared_distances = torch.addmv(squares, features, features[pick], alpha=-2).add_(squares[pick]).clamp_(min=0)
            torch.minimum(nearest, squared_distances, out=nearest)
            nearest[pick] = -1
        return Chosen.plain(torch.tensor(picks[len(members) :], dtype=torch.int64))
