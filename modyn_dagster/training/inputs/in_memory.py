"""A whole training set in memory, gathered batch by batch."""

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fastpath import Order
from fastpath.order import Batching
from modyn_dagster.keys import KeyArray
from modyn_dagster.training.inputs.batch import Batch
from modyn_dagster.training.memory import ALIGNMENT, empty_aligned
from modyn_dagster.training.models.network import Tensors

#: Batches gathered together at most.
MOST_BATCHES: Final = 64
#: Bytes gathered together at most, unless one batch has more: they fit into the cache of a core.
CACHE_BYTES: Final = 1 << 20

Positions = npt.NDArray[np.int64]
#: ``(places of an epoch int64[k], keys uint64[k], weights float32[k]) -> positions int64[k]``; fills keys and weights.
Take = Callable[[Positions, KeyArray, npt.NDArray[np.float32]], Positions]


class InMemory:
    """Inputs and targets of a whole training set in memory.

    Every batch is aligned like a tensor of torch, so that it gives the bits of a batch built alone.

    Args:
        inputs: inputs by name, ``[n, ...]``.
        targets: ``[n]``.
        most_batches: limit of the batches gathered together.
        cache_bytes: limit of their bytes, by the cache of a core; a batch above it is gathered alone.
    """

    def __init__(
        self, inputs: Tensors, targets: Tensor, *, most_batches: int = MOST_BATCHES, cache_bytes: int = CACHE_BYTES
    ) -> None:
        self._inputs, self._targets = inputs, targets
        self._most_batches, self._cache_bytes = most_batches, cache_bytes
        sizes = [tensor[:1].nbytes for tensor in (*inputs.values(), targets)]
        # Keys and weights.
        sizes += [8, 4]
        self._row = sum(sizes)
        #: Multiples of this number of rows keep the alignment of all arrays.
        self._unit = max(ALIGNMENT // math.gcd(ALIGNMENT, size) for size in sizes if size)

    def batches(self, order: Order, batching: Batching, take: Take, *, start: int) -> Iterator[Batch]:
        """Yield the batches of an epoch, from number ``start`` on."""
        number, end = start, len(batching)
        n_full = min(end, batching.n // batching.batch_size)
        while number < end:
            # A short last batch is gathered alone.
            begin, end_of_part = batching.part_bounds(number)
            n = min(self._batches_per_gather(end_of_part - begin), n_full - number) if number < n_full else 1
            first, last = batching.bounds(number)[0], batching.bounds(number + n - 1)[1]
            # The part lies at the same columns of all whole batches.
            places = order.positions(first, last).reshape(n, -1)[:, begin - first : end_of_part - first]
            yield from self._gathered(np.ascontiguousarray(places), take)
            number += n

    def _batches_per_gather(self, batch_size: int) -> int:
        return max(1, min(self._most_batches, self._cache_bytes // (self._row * self._padded(batch_size))))

    def _padded(self, size: int) -> int:
        return -(-size // self._unit) * self._unit

    def _gathered(self, places: Positions, take: Take) -> Iterator[Batch]:
        """Yield a batch for each row of ``places``."""
        n, size = places.shape
        if n > 1 and (width := self._padded(size)) != size:
            padded = np.repeat(places[:, :1], width, axis=1)
            padded[:, :size] = places
            places = padded
        keys, weights = np.empty(places.size, np.uint64), empty_aligned((places.size,), np.float32)
        positions = torch.from_numpy(take(places.reshape(-1), keys, weights))

        def split(block: Tensor) -> tuple[Tensor, ...]:
            rows = block.view(n, len(block) // n, *block.shape[1:])
            return (rows if rows.shape[1] == size else rows[:, :size]).unbind(0)

        named = {name: split(tensor.index_select(0, positions)) for name, tensor in self._inputs.items()}
        targets, sums = split(self._targets.index_select(0, positions)), _sums(weights.reshape(n, -1)[:, :size])
        parts = zip(split(torch.from_numpy(keys.view(np.int64))), targets, split(torch.from_numpy(weights)), sums)
        for i, (keys_of_one, targets_of_one, weights_of_one, weight) in enumerate(parts):
            inputs = {name: tensors[i] for name, tensors in named.items()}
            yield Batch(keys_of_one, inputs, targets_of_one, weights_of_one, weight)


def _sums(weights: npt.NDArray[np.float32]) -> list[float]:
    """Sum of each row, with the bits of a sum of the row alone."""
    if (weights == 1).all():
        return [float(weights.shape[1])] * len(weights)
    return [float(np.sum(row, dtype=np.float64)) for row in weights]
