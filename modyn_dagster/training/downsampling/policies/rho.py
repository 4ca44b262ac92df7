"""Prefer what can still be learnt."""

from dataclasses import dataclass
from typing import ClassVar

from modyn_dagster.training.downsampling.draws import top
from modyn_dagster.training.downsampling.pool import Chosen, Pool


@dataclass(frozen=True)
class RHO:
    """Highest loss less irreducible loss, that of a model which never saw the sample (Mindermann et al., ICML 2022)."""

    needs: ClassVar[frozenset[str]] = frozenset({"losses", "irreducible_losses"})

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """The ``k`` with the most to gain."""
        return top(pool.sample_losses().double() - pool.need("irreducible_losses").double(), k, pool, seed)
