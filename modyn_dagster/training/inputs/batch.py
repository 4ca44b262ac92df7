"""A batch of training samples, and the batches of a training set that is kept in memory."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fastpath import Order
from fastpath.order import Batching
from modyn_dagster.keys import KeyArray
from modyn_dagster.training.memory import ALIGNMENT, empty_aligned
from modyn_dagster.training.models.network import Tensors


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's samples, on the device that trains.

    Attributes:
        keys: ``int64[B]``.
        inputs: by name, ``[B, ...]``.
        targets: ``[B]``.
        weights: ``float32[B]``.
        weight: their sum, or that of the pool they were drawn from.
        divisor: what the weighted sum of losses is divided by; None: the sum of the weights.
    """

    keys: Tensor
    inputs: Tensors
    targets: Tensor
    weights: Tensor
    weight: float
    divisor: float | None = None

    def drawn(self, indices: Tensor, weights: Tensor, *, estimates: bool) -> "Batch":
        """Some of it, with the weights they were drawn with; an estimator's losses stand for the whole batch."""
        at = indices.to(self.targets.device)
        return Batch(
            self.keys.index_select(0, indices.to(self.keys.device)),
            {name: tensor.index_select(0, at) for name, tensor in self.inputs.items()},
            self.targets.index_select(0, at),
            self.weights.index_select(0, at) * weights.to(self.weights),
            self.weight,
            self.weight if estimates else None,
        )


@dataclass(frozen=True, slots=True)
class Subset:
    """Samples that an epoch trains on.

    Attributes:
        positions: ``int64[k]`` in the training set.
        weights: ``float32[k]``, all above 0.
        pool_weight: sum of the weights that an estimator's losses stand for; None: they stand for themselves.
    """

    positions: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float32]
    pool_weight: float | None


def scaled_to_pool(batches: Iterator[Batch], subset: Subset) -> Iterator[Batch]:
    """A batch of ``b`` of the ``k`` samples of an estimate stands for the ``b / k``-th part of the pool."""
    assert subset.pool_weight is not None  # noqa: S101 - for the type checker
    for batch in batches:
        share = subset.pool_weight * len(batch.targets) / len(subset.positions)
        yield replace(batch, weight=share, divisor=share)


#: Batches are gathered together up to so many of them and so many bytes, which a core's own cache holds.
_BATCHES: Final = 64
_BYTES: Final = 1 << 20

Positions = npt.NDArray[np.int64]
#: ``(places of an epoch int64[k], keys uint64[k], weights float32[k]) -> positions int64[k]``; fills keys and weights.
Take = Callable[[Positions, KeyArray, npt.NDArray[np.float32]], Positions]
#: Keys ``int64[b]``, inputs ``[b, ...]`` by name, targets ``[b]``, weights ``float32[b]`` and their sum.
Parts = tuple[Tensor, Tensors, Tensor, Tensor, float]


class InMemory:
    """The inputs and targets of a whole training set.

    Every batch begins where torch would have put it, so that it gives the bits of one that was made by itself.

    Args:
        inputs: by name, ``[n, ...]``.
        targets: ``[n]``.
    """

    def __init__(self, inputs: Tensors, targets: Tensor) -> None:
        self._inputs, self._targets = inputs, targets
        sizes = [tensor[:1].nbytes for tensor in (*inputs.values(), targets)]
        # Keys and weights.
        sizes += [8, 4]
        self._row = sum(sizes)
        #: A multiple of so many rows keeps the alignment of all of them.
        self._unit = max(ALIGNMENT // math.gcd(ALIGNMENT, size) for size in sizes if size)

    def batches(self, order: Order, batching: Batching, take: Take, *, start: int) -> Iterator[Parts]:
        """Batches of an epoch, from number ``start`` on."""
        number, end = start, len(batching)
        n_full = min(end, batching.n // batching.batch_size)
        while number < end:
            # A short last batch comes by itself.
            n = min(self._together(batching.batch_size), n_full - number) if number < n_full else 1
            first, last = batching.bounds(number)[0], batching.bounds(number + n - 1)[1]
            yield from self._gathered(order.positions(first, last).reshape(n, -1), take)
            number += n

    def _together(self, batch_size: int) -> int:
        return max(1, min(_BATCHES, _BYTES // (self._row * self._padded(batch_size))))

    def _padded(self, size: int) -> int:
        return -(-size // self._unit) * self._unit

    def _gathered(self, places: Positions, take: Take) -> Iterator[Parts]:
        """A batch for each row of ``places``."""
        n, size = places.shape
        if n > 1 and (width := self._padded(size)) != size:
            padded = np.repeat(places[:, :1], width, axis=1)
            padded[:, :size] = places
            places = padded
        keys, weights = np.empty(places.size, np.uint64), empty_aligned((places.size,), np.float32)
        at = torch.from_numpy(take(places.reshape(-1), keys, weights))

        def split(block: Tensor) -> tuple[Tensor, ...]:
            rows = block.view(n, len(block) // n, *block.shape[1:])
            return (rows if rows.shape[1] == size else rows[:, :size]).unbind(0)

        named = {name: split(tensor.index_select(0, at)) for name, tensor in self._inputs.items()}
        targets, sums = split(self._targets.index_select(0, at)), _sums(weights.reshape(n, -1)[:, :size])
        parts = zip(split(torch.from_numpy(keys.view(np.int64))), targets, split(torch.from_numpy(weights)), sums)
        for i, (keys_of_one, targets_of_one, weights_of_one, weight) in enumerate(parts):
            inputs = {name: tensors[i] for name, tensors in named.items()}
            yield keys_of_one, inputs, targets_of_one, weights_of_one, weight


def _sums(weights: npt.NDArray[np.float32]) -> list[float]:
    """Sum of each row, added up as if the row were alone."""
    if (weights == 1).all():
        return [float(weights.shape[1])] * len(weights)
    return [float(np.sum(row, dtype=np.float64)) for row in weights]
