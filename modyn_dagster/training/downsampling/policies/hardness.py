"""Scores of how hard a sample is, gathered early in a training or over it; the hardest, or a band below them, are kept."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from modyn_dagster.training.downsampling.draws import top
from modyn_dagster.training.downsampling.pool import Chosen, Pool


@dataclass(frozen=True)
class _Hardest:
    """Keeps the highest scores.

    Args:
        offset: share of the pool with the highest scores that is passed over first: the hardest are often noise.
    """

    offset: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.offset < 1:
            raise ValueError(f"offset must be at least 0 and below 1, not {self.offset}")

    def hardest(self, scores: Tensor, k: int, pool: Pool, seed: int) -> Chosen:
        """``k`` of ``float[n]``; the band ends with the pool if it must."""
        skipped = min(round(self.offset * pool.n), pool.n - k)
        return Chosen.plain(top(scores, skipped + k, pool, seed).indices[skipped:])


@dataclass(frozen=True)
class EL2N(_Hardest):
    """The norm of ``p - y`` (Paul et al., NeurIPS 2021, definition 2.4).

    The mean over recorded scores ``history [r, n]`` if given, else over the models in ``logits [r, n, c]``, or of one.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logits", "history"})

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """The ``k`` hardest."""
        scores = pool.history if pool.history is not None else self.scores(pool)
        return self.hardest(scores.double().reshape(-1, pool.n).mean(0), k, pool, seed)

    def scores(self, pool: Pool) -> Tensor:
        """Score the pool by its logits, ``float[..., n]``."""
        return pool.last_layer().square().sum(-1).sqrt()


@dataclass(frozen=True)
class GraNd(_Hardest):
    """The norm of the gradient (the same, definition 2.1), as EL2N from ``history`` or ``gradients [r, n, d]``."""

    needs: ClassVar[frozenset[str]] = frozenset({"gradients", "history"})

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """The ``k`` hardest."""
        scores = pool.history if pool.history is not None else self.scores(pool)
        return self.hardest(scores.double().reshape(-1, pool.n).mean(0), k, pool, seed)

    def scores(self, pool: Pool) -> Tensor:
        """Score the pool by its gradients, ``float[..., n]``."""
        return pool.sample_gradients().square().sum(-1).sqrt()


@dataclass(frozen=True)
class Forgetting(_Hardest):
    """Prefer samples that are often forgotten: right in one epoch, wrong in the next (Toneva et al., ICLR 2019).

    A sample that was never right counts as forgotten infinitely often.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logits", "history"})

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """The ``k`` most often forgotten."""
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
