"""Centres that nobody is far from."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from modyn_dagster.training.downsampling.pool import Chosen, Pool
from modyn_dagster.training.downsampling.solvers.distances import prepared


@dataclass(frozen=True)
class KCenter:
    """Always the sample farthest from the centres so far (Gonzalez 1985; Sener and Savarese, ICLR 2018, algorithm 1).

    The largest distance to a centre is at most twice the smallest possible. The first centre is ``selected`` or random.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"embeddings"})
    extends: ClassVar[bool] = True

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """The centres, in the order of picks."""
        features, squares = prepared(pool.features())
        # Squared distances to the nearest centre, but -1 for centres: none is chosen again, not even among copies of itself.
        nearest = torch.full((pool.n,), torch.inf, dtype=features.dtype, device=features.device)
        known = [] if pool.selected is None else pool.selected.tolist()
        picks: list[int] = []
        for _ in range(len(known) + k):
            if len(picks) < len(known):
                pick = known[len(picks)]
            else:
                pick = int(torch.argmax(nearest)) if picks else int(pool.rng(seed).integers(pool.n))
            picks.append(pick)
            apart = torch.addmv(squares, features, features[pick], alpha=-2).add_(squares[pick]).clamp_(min=0)
            torch.minimum(nearest, apart, out=nearest)
            nearest[pick] = -1
        return Chosen.plain(torch.tensor(picks[len(known) :], dtype=torch.int64))
