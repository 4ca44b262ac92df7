"""Samples whose running mean stays close to that of all."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from modyn_dagster.training.downsampling.pool import Chosen, Pool
from modyn_dagster.training.downsampling.solvers.distances import prepared


@dataclass(frozen=True)
class Herding:
    """Add whatever brings the mean of the set closest to the mean of the pool (Welling 2009; Rebuffi et al., iCaRL, 2017).

    Per class where labels are given.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"embeddings"})
    by_class: ClassVar[bool] = True
    extends: ClassVar[bool] = True

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """The set, in the order of picks."""
        # Around the mean: the sum of the set has to stay close to 0.
        features, squares = prepared(pool.features())
        members = [] if pool.selected is None else pool.selected.tolist()
        total = features[members].sum(0)
        closed = torch.zeros(pool.n, dtype=features.dtype, device=features.device)
        closed[members] = torch.inf
        picks: list[int] = []
        for _ in range(k):
            # |total + x|^2, but for what all have in common.
            pick = int(torch.argmin(torch.addmv(squares, features, total, alpha=2) + closed))
            picks.append(pick)
            total = total + features[pick]
            closed[pick] = torch.inf
        return Chosen.plain(torch.tensor(picks, dtype=torch.int64))
