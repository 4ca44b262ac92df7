"""Keys and weights in partitions of one size, however they come."""

from collections.abc import Iterable, Iterator

import numpy as np

from fastpath import Partition


def rechunked(parts: Iterable[Partition], size: int) -> Iterator[Partition]:
    """The same samples in partitions of exactly ``size``; the last may be shorter."""
    waiting: list[Partition] = []
    n_waiting = 0
    for part in parts:
        waiting.append(part)
        n_waiting += len(part.keys)
        if n_waiting < size:
            continue
        keys, weights = (np.concatenate(columns) for columns in zip(*waiting, strict=True))
        n_full = n_waiting - n_waiting % size
        for start in range(0, n_full, size):
            yield Partition(keys[start : start + size], weights[start : start + size])
        waiting, n_waiting = [Partition(keys[n_full:], weights[n_full:])], n_waiting - n_full
    if n_waiting:
        keys, weights = (np.concatenate(columns) for columns in zip(*waiting, strict=True))
        yield Partition(keys, weights)
