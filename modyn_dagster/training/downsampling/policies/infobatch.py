"""Unbiased dynamic pruning."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from modyn_dagster.training.downsampling.draws import require_numbers
from modyn_dagster.training.downsampling.pool import Chosen, Pool


@dataclass(frozen=True)
class InfoBatch:
    """InfoBatch: drops samples below the mean loss with probability ``ratio`` and weights the rest of them ``1 / (1 - ratio)``.

    Every sample has an independent draw, so its expected weight is exactly 1. The number of samples is random and ``k`` is
    ignored.

    Args:
        ratio: probability of being dropped.
        epochs: number of epochs of the training; None prunes in every epoch.
        delta: share of the epochs after which pruning stops.

    >>> from modyn_dagster.training.downsampling import select
    >>> indices, weights = select("infobatch", losses=[0.1, 0.2, 0.3, 5.0], ratio=0.6, k=4, seed=1)
    >>> indices.tolist(), weights.tolist()
    ([0, 1, 3], [2.5, 2.5, 1.0])

    Source: Qin et al., InfoBatch, ICLR 2024.
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
        """Draw the samples that stay."""
        losses = pool.sample_losses().detach().to("cpu", torch.float64).numpy()
        require_numbers(losses, pool.asked_by, finite=True)
        pruning = self.epochs is None or pool.epoch < self.delta * self.epochs
        low = (losses < losses.mean()) & pruning
        kept = np.flatnonzero(~low | (pool.rng(seed).random(pool.n) >= self.ratio))
        weights = np.where(low[kept], 1 / (1 - self.ratio), 1.0)
        return Chosen(torch.from_numpy(kept), torch.from_numpy(weights), estimates=True)
