"""Samples whose steps lower the loss on validation data most."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from modyn_dagster.training.downsampling.draws import require_numbers
from modyn_dagster.training.downsampling.pool import Chosen, Pool


@dataclass(frozen=True)
class Glister:
    """Greedy by the first-order gain ``g_j . grad L_val`` (Killamsetty et al., AAAI 2021, algorithm 2).

    ``validation_gradient`` is the gradient now, or a function that tells it after a step ``lr * sum of g over the set``; then
    it is asked anew after every ``refresh`` picks.

    Args:
        lr: length of the step per sample.
        refresh: picks between two looks at the validation loss; None: twenty looks in all.
    """

    lr: float = 0.01
    refresh: int | None = None

    needs: ClassVar[frozenset[str]] = frozenset({"gradients", "validation_gradient"})
    extends: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.refresh is not None and self.refresh < 1:
            raise ValueError(f"refresh must be at least 1, not {self.refresh}")

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """The greedy set, in the order of picks."""
        gradients = pool.sample_gradients().detach().double()
        step = torch.zeros(gradients.shape[1], dtype=gradients.dtype, device=gradients.device)
        ties = pool.rng(seed).permutation(pool.n)
        open_ = np.ones(pool.n, dtype=bool)
        if pool.selected is not None:
            open_[pool.selected.numpy()] = False
            step += self.lr * gradients[pool.selected].sum(0)
        each = self.refresh or max(1, k // 20)
        picks: list[int] = []
        while len(picks) < k:
            gains = (gradients @ _gradient(pool, step)).cpu().numpy()
            require_numbers(gains, pool.asked_by)
            order = np.lexsort((ties, -gains))
            taken = order[open_[order]][: min(each, k - len(picks))]
            picks += taken.tolist()
            open_[taken] = False
            step += self.lr * gradients[torch.from_numpy(taken)].sum(0)
        return Chosen.plain(torch.tensor(picks, dtype=torch.int64))


def _gradient(pool: Pool, step: Tensor) -> Tensor:
    given = pool.validation_gradient
    found = torch.as_tensor(given(step)) if callable(given) else pool.need("validation_gradient")
    if found.shape != step.shape:
        raise ValueError(f"validation_gradient= must be float[{len(step)}] like the gradients, found shape {tuple(found.shape)}")
    return found.to(step)
