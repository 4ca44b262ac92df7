"""Unbiased dynamic pruning (Qin et al., InfoBatch, ICLR 2024)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from modyn_dagster.training.downsampling.draws import require_numbers
from modyn_dagster.training.downsampling.pool import Chosen, Pool


@dataclass(frozen=True)
class InfoBatch:
    """Samples below the mean loss are dropped with probability ``ratio``; those that stay count ``1 / (1 - ratio)``.

    Each is dropped by a coin of its own, so the expected weight of every sample is exactly 1. How many stay is up to the coins:
    ``k`` is ignored.

    Args:
        ratio: probability of being dropped.
        epochs: of the whole training; None: unknown, always prune.
        delta: share of the epochs after which nothing is dropped any more.
    """

    ratio: float = 0.5
    epochs: int | None = None
    delta: float = 0.875

    needs: ClassVar[frozenset[str]] = frozenset({"losses"})

    def __post_init__(self) -> None:
        if not 0 <= self.ratio < 1:
            raise ValueError(f"ratio must be at least 0 and below 1, not {self.ratio}")
        if not 0 <= self.delta <= 1:
            raise ValueError(f"delta must be between 0 and 1, not {self.delta}")

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Throw the coins."""
        losses = pool.sample_losses().detach().to("cpu", torch.float64).numpy()
        require_numbers(losses, pool.asked_by, finite=True)
        pruning = self.epochs is None or pool.epoch < self.delta * self.epochs
        low = (losses < losses.mean()) & pruning
        kept = np.flatnonzero(~low | (pool.rng(seed).random(pool.n) >= self.ratio))
        weights = np.where(low[kept], 1 / (1 - self.ratio), 1.0)
        return Chosen(torch.from_numpy(kept), torch.from_numpy(weights), estimates=True)
