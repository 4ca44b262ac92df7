"""Hardness scores of samples, recorded during a training. The hardest samples, or a band below them, are kept."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from modyn_dagster.training.downsampling.draws import top
from modyn_dagster.training.downsampling.pool import Chosen, Pool


@dataclass(frozen=True)
class _Hardest:
    """Choice of the highest scores.

    Args:
        offset: share of the pool with the highest scores to skip; the hardest samples are often noise.
    """

    offset: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.offset < 1:
            raise ValueError(f"offset must be at least 0 and below 1, not {self.offset}")

    def hardest(self, scores: Tensor, k: int, pool: Pool, seed: int) -> Chosen:
        """Choose ``k`` by scores ``float[n]``. Skip fewer where the pool would end before the band does."""
        skipped = min(round(self.offset * pool.n), pool.n - k)
        return Chosen.plain(top(scores, skipped + k, pool, seed).indices[skipped:])


@dataclass(frozen=True)
class EL2N(_Hardest):
    """Error L2 norm: highest norm of ``p - y``.

    The score is the mean of the recorded ``history [r, n]`` if given, else of the models in ``logits [r, n, c]``, else the
    score of the one model in ``logits [n, c]``.

    Args:
        offset: share of the pool with the highest scores to skip.

    >>> from modyn_dagster.training.downsampling import select
    >>> indices, _ = select("el2n", logits=[[2.0, -2.0], [-1.0, 1.0], [0.1, 0.0]], labels=[0, 0, 0], k=2, seed=0)
    >>> indices.tolist()
    [1, 2]

    Source: Paul, Ganguli and Dziugaite, Deep Learning on a Data Diet, NeurIPS 2021, definition 2.4.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logits", "history"})

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Choose the ``k`` hardest."""
        scores = pool.history if pool.history is not None else self.scores(pool)
        return self.hardest(scores.double().reshape(-1, pool.n).mean(0), k, pool, seed)

    def scores(self, pool: Pool) -> Tensor:
        """Score the pool by its logits, ``float[..., n]``."""
        return pool.last_layer().square().sum(-1).sqrt()


@dataclass(frozen=True)
class GraNd(_Hardest):
    """Gradient norm: highest norm of the loss gradient, averaged like EL2N from ``history`` or ``gradients [r, n, d]``.

    Args:
        offset: share of the pool with the highest scores to skip.

    >>> from modyn_dagster.training.downsampling import select
    >>> indices, _ = select("grand", gradients=[[0.1, 0.0], [3.0, 4.0], [1.0, 0.0]], k=1, seed=0)
    >>> indices.tolist()
    [1]

    Source: Paul, Ganguli and Dziugaite, Deep Learning on a Data Diet, NeurIPS 2021, definition 2.1.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"gradients", "history"})

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Choose the ``k`` hardest."""
        scores = pool.history if pool.history is not None else self.scores(pool)
        return self.hardest(scores.double().reshape(-1, pool.n).mean(0), k, pool, seed)

    def scores(self, pool: Pool) -> Tensor:
        """Score the pool by its gradients, ``float[..., n]``."""
        return pool.sample_gradients().square().sum(-1).sqrt()


@dataclass(frozen=True)
class Forgetting(_Hardest):
    """Forgetting events: most often right in one epoch and wrong in the next.

    A sample that was never right counts as forgotten infinitely often.

    Args:
        offset: share of the pool with the highest scores to skip.

    >>> from modyn_dagster.training.downsampling import select
    >>> history = [[True, False, True], [False, False, True], [True, False, False]]
    >>> indices, _ = select("forgetting", history=history, k=2, seed=0)
    >>> indices.tolist()
    [1, 0]

    Source: Toneva et al., An Empirical Study of Example Forgetting, ICLR 2019, section 3.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logits", "history"})

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Choose the ``k`` most often forgotten."""
        return self.hardest(forgetting_events(pool.need("history")), k, pool, seed)

    def scores(self, pool: Pool) -> Tensor:
        """Correctness of each sample in this epoch, ``float[n]``: 1 or 0."""
        return (pool.need("logits").argmax(-1) == pool.need("labels")).double()


def forgetting_events(right: Tensor) -> Tensor:
    """Count forgetting events in a history of correctness ``[epochs, n]``: ``float64[n]``.

    >>> forgetting_events(torch.tensor([[1, 0, 1], [0, 0, 1], [1, 0, 0]])).tolist()
    [1.0, inf, 1.0]
    """
    was = right.bool()
    events = (was[:-1] & ~was[1:]).sum(0).double()
    return torch.where(was.any(0), events, torch.inf)
