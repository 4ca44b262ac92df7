"""Uncertainty sampling. Scores use probabilities: a constant added to a sample's logits changes nothing."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from modyn_dagster.training.downsampling.draws import top
from modyn_dagster.training.downsampling.pool import Chosen, Pool


@dataclass(frozen=True)
class LeastConfidence:
    """Least confidence: highest ``1 - max p``. The policy has no options.

    >>> from modyn_dagster.training.downsampling import select
    >>> indices, _ = select("least_confidence", logits=[[2.0, -2.0], [-1.0, 1.0], [0.1, 0.0]], k=1, seed=0)
    >>> indices.tolist()
    [2]

    Source: Coleman et al., Selection via Proxy, ICLR 2020, section 3.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Choose the ``k`` with the lowest confidence."""
        return top(1 - _probabilities(pool).amax(1), k, pool, seed)


@dataclass(frozen=True)
class Margin:
    """Margin: smallest distance between the two largest probabilities. The policy has no options.

    >>> from modyn_dagster.training.downsampling import select
    >>> indices, _ = select("margin", logits=[[2.0, -2.0], [-1.0, 1.0], [0.1, 0.0]], k=1, seed=0)
    >>> indices.tolist()
    [2]

    Source: Coleman et al., Selection via Proxy, ICLR 2020, section 3.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Choose the ``k`` with the smallest margin."""
        first, second = _probabilities(pool).topk(2, dim=1).values.T
        return top(second - first, k, pool, seed)


@dataclass(frozen=True)
class Entropy:
    """Entropy: highest ``-sum p log p``. The policy has no options.

    >>> from modyn_dagster.training.downsampling import select
    >>> indices, _ = select("entropy", logits=[[2.0, -2.0], [-1.0, 1.0], [0.1, 0.0]], k=1, seed=0)
    >>> indices.tolist()
    [2]

    Source: Coleman et al., Selection via Proxy, ICLR 2020, section 3.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """Choose the ``k`` with the highest entropy."""
        return top(torch.special.entr(_probabilities(pool)).sum(1), k, pool, seed)


def _probabilities(pool: Pool) -> Tensor:
    logits = pool.need("logits")
    if logits.shape[1] < 2:
        raise ValueError(f"{pool.asked_by} needs logits= of at least two classes, found shape {tuple(logits.shape)}")
    return torch.softmax(logits.double(), dim=1)
