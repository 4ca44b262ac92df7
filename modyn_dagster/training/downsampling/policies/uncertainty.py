"""Prefer what the model is unsure about. Scores use probabilities: a constant added to a sample's logits changes nothing.

All three: Coleman et al., Selection via Proxy, ICLR 2020, section 3.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from modyn_dagster.training.downsampling.draws import top
from modyn_dagster.training.downsampling.pool import Chosen, Pool


@dataclass(frozen=True)
class LeastConfidence:
    """Highest ``1 - max p``."""

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """The ``k`` least confident."""
        return top(1 - _probabilities(pool).amax(1), k, pool, seed)


@dataclass(frozen=True)
class Margin:
    """Smallest distance between the two largest probabilities."""

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """The ``k`` closest calls."""
        first, second = _probabilities(pool).topk(2, dim=1).values.T
        return top(second - first, k, pool, seed)


@dataclass(frozen=True)
class Entropy:
    """Highest ``-sum p log p``."""

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def __call__(self, pool: Pool, k: int, seed: int) -> Chosen:
        """The ``k`` most spread out."""
        return top(torch.special.entr(_probabilities(pool)).sum(1), k, pool, seed)


def _probabilities(pool: Pool) -> Tensor:
    logits = pool.need("logits")
    if logits.shape[1] < 2:
        raise ValueError(f"{pool.asked_by} needs logits= of at least two classes, found shape {tuple(logits.shape)}")
    return torch.softmax(logits.double(), dim=1)
