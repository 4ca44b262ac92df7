"""Samples whose gradient steps lower the validation loss most."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from modyn_dagster.training.downsampling.draws import require_numbers
from modyn_dagster.training.downsampling.pool import Chosen, Pool


@dataclass(frozen=True)
class Glister:
    """Greedy choice by the first-order gain ``g_j . grad L_val``.

    ``validation_gradient`` is the current gradient of the validation loss, or a function of the step
    ``lr * sum of g over the set``. The function is called again after every ``refresh`` picks.

    Args:
        lr: length of the step per sample.
        refresh: number of picks between two validation gradients; None computes twenty in all.

    >>> from modyn_dagster.training.downsampling import select
    >>> gradients = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9], [0.0, 1.1]]
    >>> indices, weights = select("glister", gradients=gradients, validation_gradient=[0.0, 1.0], k=2, seed=0)
    >>> indices.tolist(), weights.tolist()
    ([4, 2], [1.0, 1.0])

    Source: Killamsetty et al., GLISTER, AAAI 2021, algorithm 2.
    """

    lr: float = 0.01
    refresh: int | None = None

    needs: ClassVar[frozenset[str]] = frozenset({"gradients", "validation_gradient"})
    extends: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.refresh is not None and self.refresh < 1:
            raise ValueError(f"refresh must be at least 1, not {self.refresh}")

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Choose the greedy set, in the order of picks."""
        gradients = pool.sample_gradients().detach().double()
        step = torch.zeros(gradients.shape[1], dtype=gradients.dtype, device=gradients.device)
        ties = pool.rng(seed).permutation(pool.n)
        available = np.ones(pool.n, dtype=bool)
        if pool.selected is not None:
            available[pool.selected.numpy()] = False
            step += self.lr * gradients[pool.selected].sum(0)
        refresh = self.refresh or max(1, k // 20)
        picks: list[int] = []
        while len(picks) < k:
            gains = (gradients @ _gradient(pool, step)).cpu().numpy()
            require_numbers(gains, pool.asked_by)
            order = np.lexsort((ties, -gains))
            taken = order[available[order]][: min(refresh, k - len(picks))]
            picks += taken.tolist()
            available[taken] = False
            step += self.lr * gradients[torch.from_numpy(taken)].sum(0)
        return Chosen.plain(torch.tensor(picks, dtype=torch.int64))


def _gradient(pool: Pool, step: Tensor) -> Tensor:
    source = pool.validation_gradient
    gradient = torch.as_tensor(source(step)) if callable(source) else pool.need("validation_gradient")
    if gradient.shape != step.shape:
        rule = f"must be float[{len(step)}] like the gradients, found shape {tuple(gradient.shape)}"
        raise ValueError(f"validation_gradient= {rule}")
    return gradient.to(step)
