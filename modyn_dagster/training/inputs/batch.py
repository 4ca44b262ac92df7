"""Samples of one training step: all of them, or the share of a rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from modyn_dagster.training.models.network import Tensors


@dataclass(frozen=True, slots=True)
class Whole:
    """Samples of a step on all ranks, those of rank 0 first.

    Attributes:
        keys: ``int64[B]``.
        targets: ``[B]``.
        weights: ``float32[B]``.
        counts: number of samples by rank.
        rank: index of this rank.
        order: ``int64[B]``, place of each sample in the batch of one process; None where the order is the same.
    """

    keys: Tensor
    targets: Tensor
    weights: Tensor
    counts: tuple[int, ...]
    rank: int
    order: Tensor | None = None

    @property
    def bounds(self) -> tuple[int, int]:
        """Place of this rank's first sample, and the place behind its last."""
        first = sum(self.counts[: self.rank])
        return first, first + self.counts[self.rank]

    def own(self, rows: Tensor) -> Tensor:
        """Rows of this rank, of rows ``[B, ...]`` of all."""
        first, last = self.bounds
        return rows[first:last]

    def subset(self, indices: Tensor, weights: Tensor) -> tuple[Whole, Tensor]:
        """Choose samples with weights; also return the positions of those of this rank in its share.

        Each rank keeps its samples in the order of the choice.
        """
        chosen, ends = indices.cpu(), torch.tensor(self.counts).cumsum(0)
        rank_of = torch.bucketize(chosen, ends, right=True)
        order = torch.argsort(rank_of, stable=True)
        places, counts = chosen[order], torch.bincount(rank_of, minlength=len(self.counts))
        on_device = places.to(self.targets.device)
        whole = Whole(
            self.keys.index_select(0, places.to(self.keys.device)),
            self.targets.index_select(0, on_device),
            self.weights.index_select(0, on_device) * weights.cpu()[order].to(self.weights),
            tuple(counts.tolist()),
            self.rank,
            order,
        )
        return whole, places[rank_of[order] == self.rank] - self.bounds[0]


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples of one step, on the device of the training.

    Attributes:
        keys: ``int64[B]``.
        inputs: inputs by name, ``[B, ...]``.
        targets: ``[B]``.
        weights: ``float32[B]``.
        weight: sum of the weights, or of those of the pool that the samples were drawn from.
        divisor: divisor of the weighted sum of losses; None divides by the sum of the weights.
        whole: the batch of all ranks, of which these samples are a share; None where they are the whole batch.
    """

    keys: Tensor
    inputs: Tensors
    targets: Tensor
    weights: Tensor
    weight: float
    divisor: float | None = None
    whole: Whole | None = None

    @property
    def everything(self) -> Whole | Batch:
        """Keys, targets and weights of the samples of all ranks."""
        return self if self.whole is None else self.whole

    def __len__(self) -> int:
        """Samples of all ranks."""
        return len(self.everything.targets)

    @property
    def is_idle(self) -> bool:
        """True if no sample of the batch falls to this rank."""
        return self.whole is not None and self.whole.counts[self.whole.rank] == 0

    def share(self) -> Batch:
        """Return the samples of this rank alone, without one that was read only because its share is empty."""
        return self._at(torch.arange(0)) if self.is_idle else self

    def subset(self, indices: Tensor, weights: Tensor, *, estimates: bool) -> Batch:
        """Return some of the samples with their weights. Losses of an estimator stand for the whole batch.

        ``indices`` count the samples of all ranks; every rank keeps those that it has.
        """
        divisor = self.weight if estimates else None
        if self.whole is not None:
            whole, positions = self.whole.subset(indices, weights)
            share = self._at(positions)
            return replace(share, weights=whole.own(whole.weights), divisor=divisor, whole=whole)
        found = self._at(indices)
        return replace(found, weights=found.weights * weights.to(self.weights), divisor=divisor)

    def _at(self, indices: Tensor) -> Batch:
        positions = indices.to(self.targets.device)
        return Batch(
            self.keys.index_select(0, indices.to(self.keys.device)),
            {name: tensor.index_select(0, positions) for name, tensor in self.inputs.items()},
            self.targets.index_select(0, positions),
            self.weights.index_select(0, positions),
            self.weight,
        )


@dataclass(frozen=True, slots=True)
class Subset:
    """Subset of the training set that an epoch trains on.

    Attributes:
        positions: ``int64[k]``, positions in the training set.
        weights: ``float32[k]``, all above 0.
        pool_weight: sum of the weights of the pool, for estimators; None otherwise.
    """

    positions: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]
    pool_weight: float | None


def scaled_to_pool(batches: Iterator[Batch], subset: Subset) -> Iterator[Batch]:
    """Scale batches of an estimate: ``b`` of its ``k`` samples stand for ``b / k`` of the pool."""
    assert subset.pool_weight is not None  # noqa: S101 - for the type checker
    for batch in batches:
        share = subset.pool_weight * len(batch) / len(subset.positions)
        yield replace(batch, weight=share, divisor=share)
