"""F13: a training set of 100 million samples, written and opened."""

import time
from collections.abc import Iterator
from typing import Final

import numpy as np

from benchmarks.measure import Run, Spread, interleave
from benchmarks.report import Figure, with_least
from benchmarks.rows import BATCH
from benchmarks.setting import Setting
from fastpath import Partition, TrainingSet
from modyn_dagster.selection.training_set import write_training_set

#: Samples of a partition: 1.5 batches, the smaller of the paper's two sizes, would be 100 k.
_PARTITION: Final = 1_000_000


def figures(setting: Setting) -> Iterator[Figure]:
    """F13.write: samples a second, checksum and fsync included. F13.first_batch: open, then the first 65,536 samples. F13."""
    yield from with_least("F13", _parts(setting))


def _parts(setting: Setting) -> Iterator[Figure]:
    n = setting.sizes.training_rows
    keys, weights = np.arange(n, dtype=np.uint64) + np.uint64(1 << 32), np.ones(n, np.float32)
    partitions = [Partition(keys[at : at + _PARTITION], weights[at : at + _PARTITION]) for at in range(0, n, _PARTITION)]
    path = setting.work / "training_set.arrow"

    def write() -> Run:
        # Replacing a file with dirty pages would be charged to whoever writes next.
        path.unlink(missing_ok=True)
        start = time.perf_counter()
        write_training_set(path, partitions)
        return Run(n, time.perf_counter() - start)

    rate = interleave({"write": write}, setting.machine).rate("write")
    millions = Spread(*(value / 1e6 for value in (rate.value, rate.min, rate.max)))
    yield Figure("F13.write", f"training set of {n / 1e6:.3g} M: written with checksum and fsync", millions, "M/s", 60.0)
    written = write_training_set(path, partitions)

    def first() -> Run:
        start = time.perf_counter()
        found, _ = TrainingSet.open(path, written.checksum).slice(0, BATCH)
        seconds = time.perf_counter() - start
        if len(found) != BATCH or found[-1] != keys[BATCH - 1]:
            raise RuntimeError("the training set holds other keys than were written")
        return Run(BATCH, seconds)

    seconds = interleave({"first": first}, setting.machine).seconds("first")
    milliseconds = Spread(*(value * 1e3 for value in (seconds.value, seconds.min, seconds.max)))
    yield Figure("F13.first_batch", "the same: first batch after open", milliseconds, "ms", 5.0, at_most=True)
    path.unlink()
