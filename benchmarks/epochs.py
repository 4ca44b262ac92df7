"""Our ways through the rows, as contenders: the bare gather, the batch stream, the torch loader."""

import time
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import torch

from benchmarks.data import COLUMNS, Keys
from benchmarks.measure import Contender, Run
from benchmarks.rows import BATCH, flat_label
from fastpath import BatchStream, SampleStore
from modyn_dagster.training.loader import StreamLoader

#: Rows of one repetition: an epoch of the benchmark's rows takes only a few hundredths of a second.
_ROWS: Final = 4_000_000


def n_epochs(n: int) -> int:
    """Epochs of one repetition."""
    return max(1, _ROWS // n)


def bare(store: SampleStore, keys: Keys, batch_size: int = BATCH) -> Contender:
    """The kernel alone: keys in the order given, into two buffers used in turn. The store's threads count."""
    pieces = [np.ascontiguousarray(keys[start : start + batch_size]) for start in range(0, len(keys), batch_size)]
    ring = [COLUMNS.allocate(batch_size) for _ in range(2)]
    short = [{name: values[: len(pieces[-1])] for name, values in buffers.items()} for buffers in ring]

    def run() -> Run:
        epochs = n_epochs(len(keys))
        start = time.perf_counter()
        for _ in range(epochs):
            for i, piece in enumerate(pieces):
                store.columns_into(piece, COLUMNS, ring[i % 2] if len(piece) == batch_size else short[i % 2])
        return Run(epochs * len(keys), time.perf_counter() - start)

    return run


def stream(store: SampleStore, samples: Any, **options: Any) -> BatchStream:
    """A stream of batches with column tensors' memory, whole set shuffled unless ``options`` say otherwise."""
    return BatchStream(store, samples, **{"batch_size": BATCH, "shuffle": True, "columns": COLUMNS, **options})


def tensors(batch: Any) -> dict[str, torch.Tensor]:
    """What a training loop gets of a batch."""
    return {name: torch.from_numpy(values) for name, values in flat_label(batch.columns).items()}


def streamed(batches: BatchStream, n: int) -> Contender:
    """Epochs of a stream, each in another order, every batch made tensors."""
    return _epochs(batches, n, tensors)


def loaded(batches: BatchStream, n: int, epochs: int | None = None) -> Contender:
    """Epochs through the torch loader, training nothing."""
    return _epochs(StreamLoader(batches), n, flat_label, epochs)


def _epochs(source: Any, n: int, take: Any, epochs: int | None = None) -> Contender:
    epoch, repeats = 0, epochs or n_epochs(n)

    def run() -> Run:
        nonlocal epoch
        start = time.perf_counter()
        for _ in range(repeats):
            epoch += 1
            source.set_epoch(epoch)
            rows = drained(source, take)
        seconds = time.perf_counter() - start
        if rows != n:
            raise RuntimeError(f"an epoch has {rows} rows, expected {n}")
        return Run(repeats * n, seconds)

    return run


def drained(batches: Iterable[Any], take: Any) -> int:
    """Use every batch as little as possible; returns the number of rows."""
    rows = 0
    for batch in batches:
        rows += len(take(batch)["label"])
    return rows
