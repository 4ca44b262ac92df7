"""Samples whose running mean stays close to the mean of the pool."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from modyn_dagster.training.downsampling.pool import Chosen, Pool
from modyn_dagster.training.downsampling.solvers.distances import prepared


@dataclass(frozen=True)
class Herding:
    """Herding: each pick brings the mean of the set closest to the mean of the pool.

    The policy has no options. It runs per class where labels are given, and goes on from ``selected`` samples.

    >>> from modyn_dagster.training.downsampling import select
    >>> indices, _ = select("herding", embeddings=[[0.0], [1.0], [2.0], [10.0]], k=2, seed=0)
    >>> indices.tolist()
    [2, 1]

    Source: Welling, Herding Dynamical Weights to Learn, ICML 2009; Rebuffi et al., iCaRL, CVPR 2017, algorithm 4.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"embeddings"})
    by_class: ClassVar[bool] = True
    extends: ClassVar[bool] = True

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Choose the set, in the order of picks."""
        # Features are centred on the mean: the sum of the set has to stay close to 0.
        features, squares = prepared(pool.features())
        members = [] if pool.selected is None else pool.selected.tolist()
        total = features[members].sum(0)
        closed = torch.zeros(pool.n, dtype=features.dtype, device=features.device)
        closed[members] = torch.inf
        picks: list[int] = []
        for _ in range(k):
            # |total + x|^2 without |total|^2, which is the same for every x.
            pick = int(torch.argmin(torch.addmv(squares, features, total, alpha=2) + closed))
            picks.append(pick)
            total = total + features[pick]
            closed[pick] = torch.inf
        return Chosen.plain(torch.tensor(picks, dtype=torch.int64))
