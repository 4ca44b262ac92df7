"""Subsets that cover the pool or differ among themselves: greedy maximisation of set functions of similarities."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from modyn_dagster.training.downsampling.pool import Chosen, Pool
from modyn_dagster.training.downsampling.solvers.distances import Metric
from modyn_dagster.training.downsampling.solvers.greedy import Coverage, Cut, Objective, Strategy, Volume, greedy
from modyn_dagster.training.downsampling.solvers.precomputed_similarity import PrecomputedSimilarity
from modyn_dagster.training.downsampling.solvers.similarity import BLOCK_BYTES, Similarity


@dataclass(frozen=True)
class SimilarityPolicy:
    """Maximises a set function of similarities.

    Args:
        metric: of the embeddings; see ``Similarity``.
        similarities: ``float[n, n]`` to use instead.
        greedy: ``naive``, ``lazy`` (the same picks, faster) or ``stochastic``.
        epsilon: of stochastic greedy, which loses at most this share of the guarantee.
        block_bytes: similarities in memory at once.
    """

    metric: Metric = "cosine"
    similarities: Tensor | None = None
    greedy: Strategy = "lazy"
    epsilon: float = 0.01
    block_bytes: int = BLOCK_BYTES

    needs: ClassVar[frozenset[str]] = frozenset({"embeddings"})
    extends: ClassVar[bool] = True

    def similarity(self, features: Tensor) -> Similarity | PrecomputedSimilarity:
        """Similarity of features, or the precomputed one."""
        if self.similarities is not None:
            return PrecomputedSimilarity(torch.as_tensor(self.similarities))
        return Similarity(features, self.metric, block_bytes=self.block_bytes)

    def of(self, pool: Pool) -> Similarity | PrecomputedSimilarity:
        """Similarity of the pool's embeddings."""
        if self.similarities is None:
            return self.similarity(pool.features())
        given = self.similarity(torch.empty(0))
        if given.n != pool.n:
            raise ValueError(f"similarities are of {given.n} samples, the pool has {pool.n}")
        return given

    def picks(self, objective: Objective, pool: Pool, k: int, seed: int) -> Tensor:
        """In the order of picks, ``int64[k]``."""
        found = greedy(objective, k, self.greedy, pool.rng(seed), epsilon=self.epsilon, selected=members_of(pool))
        return torch.from_numpy(found)


def members_of(pool: Pool) -> list[int]:
    """Positions of the samples selected so far."""
    return [] if pool.selected is None else pool.selected.tolist()


@dataclass(frozen=True)
class FacilityLocation(SimilarityPolicy):
    """Everyone shall have somebody similar in the set; monotone and submodular: greedy reaches ``1 - 1/e`` of the optimum."""

    metric: Metric = "euclidean"

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """The greedy set."""
        return Chosen.plain(self.picks(Coverage(self.of(pool)), pool, k, seed))


@dataclass(frozen=True)
class GraphCut(SimilarityPolicy):
    """Similar to everyone, unlike each other; monotone from ``trade_off`` 2 on."""

    trade_off: float = 2.0

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """The greedy set."""
        return Chosen.plain(self.picks(Cut(self.of(pool), self.trade_off), pool, k, seed))


@dataclass(frozen=True)
class LogDet(SimilarityPolicy):
    """As much volume as possible; monotone from ``ridge`` 1 on."""

    ridge: float = 1.0

    def __post_init__(self) -> None:
        if not self.ridge > 0:
            raise ValueError(f"ridge must be above 0, not {self.ridge}")
        if self.metric == "euclidean":
            raise ValueError("log_det needs a metric that is a kernel: cosine, rbf or dot, not euclidean")

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """The greedy set."""
        size = k + len(members_of(pool))
        return Chosen.plain(self.picks(Volume(self.of(pool), self.ridge, size), pool, k, seed))
