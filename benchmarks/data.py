"""The benchmark's rows on disk, ingested: files of fixed rows read in place, an index per file, a store over them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks.criteo import blocks, file_name, write_files
from benchmarks.rows import GROUPS, ROW, ROWS_PER_FILE, Rows
from fastpath import Columns, SampleStore
from fastpath.format.blocks import block_digests
from fastpath.format.index_file import Extents, IndexedFile
from modyn_dagster.ingestion.batches.batch_files import write_index
from modyn_dagster.keys import keys_of
from modyn_dagster.values.digest import checksum_of

Keys = npt.NDArray[np.uint64]

#: Row bytes to the three tensors of a batch.
COLUMNS: Final = Columns(ROW, GROUPS)
_NAME: Final = "criteo"


@dataclass(frozen=True)
class Data:
    """Ingested files.

    Attributes:
        home: with ``batches/criteo/<ordinal>.arrow``; the files lie below ``root``.
        paths: of the files, in order of their ordinals, which count from 1.
        keys: of all samples, ``uint64[n]`` in stream order.
    """

    home: Path
    root: Path
    paths: Sequence[Path]
    keys: Keys
    _modified: dict[str, int]

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.keys)

    def open(self, **options: Any) -> SampleStore:
        """A store over all files; ``options`` as ``SampleStore.open`` takes them."""
        indexes = {i: self.home / f"batches/{_NAME}/{i}.arrow" for i in range(1, len(self.paths) + 1)}
        return SampleStore.open(
            indexes, dataset=_NAME, root=self.root, home=self.home, modified=self._modified, dtype=ROW, **options
        )

    def part(self, n_files: int) -> "Data":
        """The first files alone."""
        ordinal = self.keys[-1] if n_files >= len(self.paths) else keys_of(n_files, [2**32 - 1])[0]
        return Data(self.home, self.root, self.paths[:n_files], self.keys[self.keys <= ordinal], self._modified)

    def half(self, seed: int = 0) -> Keys:
        """A random half of all keys, in key order."""
        chosen = np.random.default_rng(seed).random(self.n) < 0.5
        return self.keys[chosen]

    def positions(self, keys: Keys) -> npt.NDArray[np.int64]:
        """Row numbers in all files one after the other."""
        return np.searchsorted(self.keys, keys).astype(np.int64)


def make(folder: Path, n: int, *, seed: int = 1) -> Data:
    """Generate ``n`` rows and ingest them."""
    return ingest(folder, write_files(folder / "data", n, seed=seed))


def make_repeated(folder: Path, n: int, *, seed: int = 1) -> Data:
    """``n`` rows in files that all repeat one file's rows: made as fast as the disk takes them, for figures about size alone."""
    root = folder / "data"
    root.mkdir(parents=True)
    rows: Rows = np.concatenate(list(blocks(min(n, ROWS_PER_FILE), seed)))
    paths = []
    for number, start in enumerate(range(0, n, ROWS_PER_FILE)):
        paths.append(root / file_name(number))
        rows[: n - start].tofile(paths[-1])
    return ingest(folder, paths)


def ingest(folder: Path, paths: Sequence[Path]) -> Data:
    """Write the index of each file as ingestion does: one extent, its times and labels."""
    root, keys, modified = paths[0].parent, [], {}
    checksums: dict[tuple[int, bytes], str] = {}
    for ordinal, path in enumerate(paths, start=1):
        rows = np.memmap(path, ROW, mode="r")
        n, found = len(rows), path.stat()
        # Files that repeat each other have one checksum; the index must hold the right one all the same.
        start = (found.st_size, rows[:1000].tobytes())
        checksum = checksums.get(start) or checksums.setdefault(start, checksum_of(path))
        times = np.full(n, np.datetime64("2024-01-01", "us") + np.timedelta64(ordinal, "D"))
        words = [np.array([value], np.int64) for value in (0, ROW.itemsize, 0, ROW.itemsize)]
        extents = Extents(np.zeros(1, np.int32), *words)
        files = [IndexedFile(path.name, found.st_size, checksum, block_digests(np.memmap(path, np.uint8, "r")).tobytes())]
        index = folder / f"batches/{_NAME}/{ordinal}.arrow"
        write_index(index, times, rows["label"].astype(np.int64), None, extents, files)
        keys.append(keys_of(ordinal, np.arange(n)))
        modified[path.name] = found.st_mtime_ns
    return Data(folder, root, paths, np.concatenate(keys), modified)


def warm(data: Data) -> None:
    """Bring all files into the page cache."""
    for path in data.paths:
        with open(path, "rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while file.read(1 << 24):
                pass


@dataclass(frozen=True)
class Packed:
    """Files that ingestion packed into one shard; ``keys uint64[n]`` in the order of the files."""

    home: Path
    keys: Keys

    @property
    def shards(self) -> list[Path]:
        """Where their bytes lie now."""
        return [self.home / "shards/images/1.bin"]

    def open(self, **options: Any) -> SampleStore:
        """A store over them."""
        return SampleStore.open([self.home / "batches/images/1.arrow"], **options)


def pack(folder: Path, paths: Sequence[Path]) -> Packed:
    """One batch of one file per sample, as ingestion packs small files: one after the other in a shard."""
    packed = Packed(folder, keys_of(1, np.arange(len(paths))))
    shard = packed.shards[0]
    shard.parent.mkdir(parents=True)
    with open(shard, "wb") as out:
        length = np.array([out.write(path.read_bytes()) for path in paths], np.int64)
    extents = Extents(np.zeros(len(length), np.int32), np.cumsum(length) - length, length)
    times = np.full(len(length), np.datetime64("2024-01-01", "us"))
    labels = np.array([int(path.parent.name.removeprefix("class_")) for path in paths], np.int64)
    files = [IndexedFile(None, int(length.sum()), checksum_of(shard))]
    write_index(folder / "batches/images/1.arrow", times, labels, None, extents, files)
    return packed
