"""Few gradients whose weighted sum is that of all."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from modyn_dagster.training.downsampling.pool import Chosen, Pool
from modyn_dagster.training.downsampling.solvers.distances import EXACT, rescaled
from modyn_dagster.training.downsampling.solvers.matching_pursuit import matching_pursuit


@dataclass(frozen=True)
class GradMatch:
    """Sparse weights of at least 0 that bring the weighted sum of gradients to their mean (Killamsetty et al., ICML 2021).

    Found by orthogonal matching pursuit; the weights are ``n`` times the solution. Nothing changes when all gradients are
    scaled: the ridge is relative to their mean square. Per class where labels are given.

    Args:
        lam: ridge per mean squared norm of a gradient. A tiny one spreads the weight where gradients are alike or outnumber
            their dimensions; 0 is plain matching pursuit.
    """

    lam: float = 1e-6

    needs: ClassVar[frozenset[str]] = frozenset({"gradients"})
    by_class: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.lam >= 0:
            raise ValueError(f"lam must be at least 0, not {self.lam}")

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """The support, and its weights."""
        gradients = pool.sample_gradients().detach()
        if not all(torch.isfinite(extreme) for extreme in torch.aminmax(gradients)):
            raise ValueError(f"{pool.asked_by}: gradients= hold NaN or infinity")
        rows = rescaled(gradients.double() if pool.n <= EXACT else gradients)
        mean_square = float(torch.linalg.vector_norm(rows, dtype=torch.float64).square() / max(1, pool.n))
        if mean_square == 0:
            # Nothing is left to learn, and any weights will do: a model that fits perfectly is no reason to stop.
            indices = torch.from_numpy(np.sort(pool.rng(seed).choice(pool.n, k, replace=False)))
            return Chosen(indices, torch.full((k,), pool.n / k, dtype=torch.float64), estimates=True)
        found, weights = matching_pursuit(rows, rows.mean(0, dtype=torch.float64), k, ridge=self.lam * mean_square)
        return Chosen(torch.from_numpy(found), torch.from_numpy(weights) * pool.n, estimates=True)
