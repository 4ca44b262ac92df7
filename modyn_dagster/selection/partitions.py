"""Partitions of a training set: keys, weights and inclusion probabilities, cut to one size.

Inclusion probabilities stand in a partition where they are not the inverses of its weights.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from fastpath import Partition
from modyn_dagster.keys import KeyArray

#: The smallest that float32 holds at full precision; a sample that unlikely is not met with.
_SMALLEST: Final = float(np.finfo(np.float32).tiny)


class ProbabilityPartition(Partition):
    """A partition whose weights are not the inverses of its samples' chances; ``chances float32[n]`` are in (0, 1]."""

    chances: npt.NDArray[np.float32]

    def __new__(cls, keys: KeyArray, weights: npt.NDArray[np.float32], chances: npt.NDArray[Any]) -> Self:
        """Chances are cut off where float32 can no longer tell them from 0."""
        self = super().__new__(cls, keys, weights)
        self.chances = np.clip(chances, _SMALLEST, 1.0).astype(np.float32, copy=False)
        return self


def inclusion_probabilities_of(part: Partition) -> npt.NDArray[np.float32] | None:
    """The chances that a partition tells; None where they are the inverses of its weights, or nobody knows them."""
    return part.chances if isinstance(part, ProbabilityPartition) else None


def rechunk(parts: Iterable[Partition], size: int) -> Iterator[Partition]:
    """The same samples in partitions of exactly ``size``; the last may be shorter."""
    waiting: list[Partition] = []
    n_waiting = 0
    for part in parts:
        waiting.append(part)
        n_waiting += len(part.keys)
        if n_waiting < size:
            continue
        whole = _joined(waiting)
        n_full = n_waiting - n_waiting % size
        for start in range(0, n_full, size):
            yield part_of(whole, start, start + size)
        waiting, n_waiting = [part_of(whole, n_full, n_waiting)], n_waiting - n_full
    if n_waiting:
        yield _joined(waiting)


def part_of(whole: Partition, start: int, stop: int) -> Partition:
    """Samples ``start`` to ``stop`` of a partition: views."""
    keys, weights, chances = whole.keys[start:stop], whole.weights[start:stop], inclusion_probabilities_of(whole)
    return Partition(keys, weights) if chances is None else ProbabilityPartition(keys, weights, chances[start:stop])


def _joined(parts: Sequence[Partition]) -> Partition:
    keys, weights = np.concatenate([part.keys for part in parts]), np.concatenate([part.weights for part in parts])
    chances = [found for part in parts if (found := inclusion_probabilities_of(part)) is not None]
    return ProbabilityPartition(keys, weights, np.concatenate(chances)) if chances else Partition(keys, weights)
