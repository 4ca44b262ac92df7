"""Reducible holdout loss."""

from dataclasses import dataclass
from typing import ClassVar

from modyn_dagster.training.downsampling.draws import top
from modyn_dagster.training.downsampling.pool import Chosen, Pool


@dataclass(frozen=True)
class RHO:
    """RHO-LOSS: highest loss minus irreducible loss, the loss of a model that never saw the sample.

    The policy has no options.

    >>> from modyn_dagster.training.downsampling import select
    >>> indices, _ = select("rho", losses=[2.0, 2.0, 0.1], irreducible_losses=[1.9, 0.3, 0.1], k=1, seed=0)
    >>> indices.tolist()
    [1]

    Source: Mindermann et al., Prioritized Training on Points that are Learnable, Worth Learning, and Not Yet Learnt, ICML 2022.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"losses", "irreducible_losses"})

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Choose the ``k`` with the largest difference."""
        return top(pool.sample_losses().double() - pool.need("irreducible_losses").double(), k, pool, seed)
