"""Sparse weights that make a few gradients sum to the gradient of the pool."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from modyn_dagster.training.downsampling.pool import Chosen, Pool
from modyn_dagster.training.downsampling.solvers.distances import EXACT, rescaled
from modyn_dagster.training.downsampling.solvers.matching_pursuit import matching_pursuit


@dataclass(frozen=True)
class GradMatch:
    """Orthogonal matching pursuit: non-negative weights that bring the weighted sum of gradients to their mean.

    The weights are ``n`` times the solution. The policy runs per class where labels are given. Scaling all gradients by one
    factor changes nothing, because the ridge is relative to their mean square.

    Args:
        lam: ridge per mean squared norm of a gradient. A tiny ridge spreads the weight where gradients are alike or outnumber
            their dimensions; 0 is plain matching pursuit.

    >>> from modyn_dagster.training.downsampling import select
    >>> gradients = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9], [0.0, 1.1]]
    >>> indices, weights = select("gradmatch", gradients=gradients, k=2, seed=0)
    >>> indices.tolist(), weights.numpy().round(2).tolist()
    ([4, 0], [2.82, 2.0])

    Source: Killamsetty et al., GRAD-MATCH, ICML 2021, algorithm 1.
    """

    lam: float = 1e-6

    needs: ClassVar[frozenset[str]] = frozenset({"gradients"})
    by_class: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.lam >= 0:
            raise ValueError(f"lam must be at least 0, not {self.lam}")

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Choose the support of the solution, weighted by it."""
        gradients = pool.sample_gradients().detach()
        if not all(torch.isfinite(extreme) for extreme in torch.aminmax(gradients)):
            raise ValueError(f"{pool.asked_by}: gradients= hold NaN or infinity")
        rows = rescaled(gradients.double() if pool.n <= EXACT else gradients)
        mean_square = float(torch.linalg.vector_norm(rows, dtype=torch.float64).square() / max(1, pool.n))
        if mean_square == 0:
            # A perfect fit has gradients of zero: any weights solve the problem, and a uniform draw keeps the training going.
            indices = torch.from_numpy(np.sort(pool.rng(seed).choice(pool.n, k, replace=False)))
            return Chosen(indices, torch.full((k,), pool.n / k, dtype=torch.float64), estimates=True)
        support, weights = matching_pursuit(rows, rows.mean(0, dtype=torch.float64), k, ridge=self.lam * mean_square)
        return Chosen(torch.from_numpy(support), torch.from_numpy(weights) * pool.n, estimates=True)
