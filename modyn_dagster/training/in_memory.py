"""Batches out of tensors in memory, gathered many at a time: a small batch costs more to ask for than to copy."""

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fastpath import Order
from fastpath.dealing import Batching
from modyn_dagster.keys import KeyArray
from modyn_dagster.training.memory import ALIGNMENT, empty_aligned
from modyn_dagster.training.network import Tensors

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
        """Those of an epoch, from number ``start`` on."""
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
    """Of each row, added up as if it were alone."""
    if (weights == 1).all():
        return [float(weights.shape[1])] * len(weights)
    return [float(np.sum(row, dtype=np.float64)) for row in weights]
