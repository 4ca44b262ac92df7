"""Representative or diverse subsets: greedy maximisation of set functions of similarities."""

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
    """Greedy maximisation of a set function of similarities.

    Args:
        metric: similarity of the embeddings; see ``Similarity``.
        similarities: ``float[n, n]`` to use instead of embeddings.
        greedy: ``naive``, ``lazy`` (the same picks, faster) or ``stochastic``.
        epsilon: share of the guarantee that stochastic greedy may lose.
        block_bytes: memory for similarities at any time.
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
        precomputed = self.similarity(torch.empty(0))
        if precomputed.n != pool.n:
            raise ValueError(f"similarities are of {precomputed.n} samples, the pool has {pool.n}")
        return precomputed

    def picks(self, objective: Objective, pool: Pool, k: int, seed: int) -> Tensor:
        """Maximise an objective: picks in order, ``int64[k]``."""
        members = members_of(pool)
        return torch.from_numpy(greedy(objective, k, self.greedy, pool.rng(seed), epsilon=self.epsilon, selected=members))


def members_of(pool: Pool) -> list[int]:
    """Positions of the samples selected so far."""
    return [] if pool.selected is None else pool.selected.tolist()


@dataclass(frozen=True)
class FacilityLocation(SimilarityPolicy):
    """Sum over the pool of the similarity to the nearest member; ``metric`` is ``euclidean`` by default.

    The function is monotone and submodular: greedy reaches ``1 - 1/e`` of the optimum. The options are those of
    ``SimilarityPolicy``.

    >>> from modyn_dagster.training.downsampling import select
    >>> indices, _ = select("facility_location", embeddings=[[0.0], [1.0], [2.0], [10.0]], k=2, seed=0)
    >>> indices.tolist()
    [1, 3]

    Source: Nemhauser, Wolsey and Fisher, An Analysis of Approximations for Maximizing Submodular Set Functions, 1978.
    """

    metric: Metric = "euclidean"

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Choose the greedy set."""
        return Chosen.plain(self.picks(Coverage(self.of(pool)), pool, k, seed))


@dataclass(frozen=True)
class GraphCut(SimilarityPolicy):
    """Similarity of the set to the pool minus similarity inside the set.

    The function is monotone from ``trade_off`` 2 on. The other options are those of ``SimilarityPolicy``.

    Args:
        trade_off: weight of the similarity to the pool.

    >>> from modyn_dagster.training.downsampling import select
    >>> indices, _ = select("graph_cut", embeddings=[[0.0], [1.0], [2.0], [10.0]], metric="euclidean", k=2, seed=0)
    >>> indices.tolist()
    [1, 2]

    Source: Lin and Bilmes, Multi-document Summarization via Budgeted Maximization of Submodular Functions, NAACL 2010.
    """

    trade_off: float = 2.0

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Choose the greedy set."""
        return Chosen.plain(self.picks(Cut(self.of(pool), self.trade_off), pool, k, seed))


@dataclass(frozen=True)
class LogDet(SimilarityPolicy):
    """Log-determinant of the set's similarities, which prefers samples that differ.

    The function is monotone from ``ridge`` 1 on. The other options are those of ``SimilarityPolicy``; ``metric`` must be a
    kernel.

    Args:
        ridge: addition to the diagonal.

    >>> from modyn_dagster.training.downsampling import select
    >>> embeddings = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9], [0.0, 1.1]]
    >>> indices, _ = select("log_det", embeddings=embeddings, k=2, seed=0)
    >>> indices.tolist()
    [0, 2]

    Source: Kulesza and Taskar, Determinantal Point Processes for Machine Learning, 2012; the fast greedy form: Chen, Zhang
    and Zhou, NeurIPS 2018.
    """

    ridge: float = 1.0

    def __post_init__(self) -> None:
        if not self.ridge > 0:
            raise ValueError(f"ridge must be above 0, not {self.ridge}")
        if self.metric == "euclidean":
            raise ValueError("log_det needs a metric that is a kernel: cosine, rbf or dot, not euclidean")

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Choose the greedy set."""
        size = k + len(members_of(pool))
        return Chosen.plain(self.picks(Volume(self.of(pool), self.ridge, size), pool, k, seed))
