"""Chance, the baseline that every other policy has to beat."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from modyn_dagster.training.downsampling.pool import Chosen, Pool


@dataclass(frozen=True)
class Uniform:
    """``k`` different samples, each with the same probability; weights ``n / k``."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Draw."""
        indices = pool.rng(seed).choice(pool.n, k, replace=False)
        return Chosen(torch.from_numpy(indices), torch.full((k,), pool.n / k, dtype=torch.float64), estimates=True)
