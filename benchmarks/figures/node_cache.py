"""F18: shuffled reads from shards through a warm node cache, against the same shards in a home of this machine."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.data import COLUMNS, Data, Keys
from benchmarks.measure import Contender, interleave, timed
from benchmarks.report import Figure
from benchmarks.rows import BATCH, ROW
from benchmarks.setting import Mismatch, Setting
from fastpath import SampleStore
from fastpath.format.blocks import block_digests
from fastpath.format.index_file import Extents, IndexedFile
from modyn_dagster.files.mounting import home_of_files
from modyn_dagster.ingestion.batches.batch_files import write_index
from modyn_dagster.storage import atomic_write

_NAME: Final = "rows"
#: Passes of one repetition of an open store.
_PASSES: Final = 4
#: Copies of everything, at the largest size.
_CACHE_BYTES: Final = 10**11


def figures(setting: Setting) -> Iterator[Figure]:
    """F18 and F18.first: rate of shuffled passes through a cache of copies over that of local files, with two threads.

    F18 reads through one open store. F18.first opens a store in each repetition, as every process does once: it verifies indexes
    and shards on both sides, and takes the leases of the copies. ``.processor`` counts the seconds of the processor.
    """
    data, work = setting.data, setting.work / "node_cache"
    local, url = work / "local", f"file://{work}/store"
    cached = home_of_files(work / "node", url, _CACHE_BYTES)
    checksums = _written(local, data)
    if _written(home_of_files(work / "writer", url, _CACHE_BYTES), data) != checksums:
        raise Mismatch("the store has other indexes")
    keys = np.random.default_rng(4).permutation(data.keys)
    # One pass fetches what the measured ones find.
    _first(cached, checksums, keys)
    for suffix, clock in (("", time.perf_counter), (".processor", time.process_time)):
        with _store(local, checksums) as plain, _store(cached, checksums) as leased:
            contenders: dict[str, Contender] = {
                "local": timed(_PASSES * len(keys), partial(_passes, plain, keys, _PASSES), clock),
                "cache": timed(_PASSES * len(keys), partial(_passes, leased, keys, _PASSES), clock),
                "local, first": timed(len(keys), partial(_first, local, checksums, keys), clock),
                "cache, first": timed(len(keys), partial(_first, cached, checksums, keys), clock),
            }
            rounds = interleave(contenders, setting.machine)
        kind = "processor " if suffix else ""
        what = f"shuffled rows through a warm node cache / local, {kind}rate"
        yield Figure(f"F18{suffix}", what, rounds.ratio("cache", "local"), "x", 0.95)
        yield Figure(f"F18.first{suffix}", f"{what} of a new store", rounds.ratio("cache, first", "local, first"), "x", 0.95)


def _written(home: Path, data: Data) -> dict[int, str]:
    """Copy each file of rows into a shard, with its index; returns the checksums of the indexes by ordinal."""
    checksums = {}
    for ordinal, path in enumerate(data.paths, start=1):
        rows = np.fromfile(path, ROW)
        with atomic_write(home / f"shards/{_NAME}/{ordinal}.bin") as out:
            out.write(rows.view(np.uint8).data)
        file = IndexedFile(None, rows.nbytes, out.checksum, block_digests(rows.view(np.uint8)).tobytes())
        words = [np.array([value], np.int64) for value in (0, ROW.itemsize, 0, ROW.itemsize)]
        extents = Extents(np.zeros(1, np.int32), *words)
        times = np.full(len(rows), np.datetime64("2024-01-01", "us") + np.timedelta64(ordinal, "D"))
        index = home / f"batches/{_NAME}/{ordinal}.arrow"
        checksums[ordinal] = write_index(index, times, rows["label"].astype(np.int64), None, extents, [file])
    return checksums


def _store(home: Path, checksums: dict[int, str]) -> SampleStore:
    indexes = {ordinal: home / f"batches/{_NAME}/{ordinal}.arrow" for ordinal in checksums}
    return SampleStore.open(indexes, dataset=_NAME, home=home, checksums=checksums, deleted={}, dtype=ROW, threads=2)


def _first(home: Path, checksums: dict[int, str], keys: Keys) -> None:
    with _store(home, checksums) as store:
        _passes(store, keys, 1)


def _passes(store: SampleStore, keys: Keys, n: int) -> None:
    out = COLUMNS.allocate(BATCH)
    for _ in range(n):
        for start in range(0, len(keys) - BATCH + 1, BATCH):
            store.columns_into(keys[start : start + BATCH], COLUMNS, out)
