"""Centres that nobody is far from."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from modyn_dagster.training.downsampling.pool import Chosen, Pool
from modyn_dagster.training.downsampling.similarity import distances, prepared


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
        farthest = torch.full((pool.n,), torch.inf, dtype=features.dtype, device=features.device)
        centres = [] if pool.selected is None else pool.selected.tolist()
        for centre in centres:
            farthest = torch.minimum(farthest, distances(features, squares, torch.tensor([centre]))[0])
        # Below every distance: a centre is never chosen again, not even among copies of itself.
        farthest[centres] = -1
        picks: list[int] = []
        while len(picks) < k:
            first = not picks and not centres
            pick = int(pool.rng(seed).integers(pool.n)) if first else int(torch.argmax(farthest))
            picks.append(pick)
            farthest = torch.minimum(farthest, distances(features, squares, torch.tensor([pick]))[0])
            farthest[pick] = -1
        return Chosen.plain(torch.tensor(picks, dtype=torch.int64))
