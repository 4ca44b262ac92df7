"""Keys, weights and chances in partitions of one size, however they come."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from fastpath import Partition
from modyn_dagster.selection.drawn import Drawn, chances_of


def rechunked(parts: Iterable[Partition], size: int) -> Iterator[Partition]:
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
    keys, weights, chances = whole.keys[start:stop], whole.weights[start:stop], chances_of(whole)
    return Partition(keys, weights) if chances is None else Drawn(keys, weights, chances[start:stop])


def _joined(parts: Sequence[Partition]) -> Partition:
    keys, weights = np.concatenate([part.keys for part in parts]), np.concatenate([part.weights for part in parts])
    chances = [found for part in parts if (found := chances_of(part)) is not None]
    return Drawn(keys, weights, np.concatenate(chances)) if chances else Partition(keys, weights)
