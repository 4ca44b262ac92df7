"""Fixed rows in shards with their indexes, as ingestion leaves them: a store without a database."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fastpath import SampleStore
from fastpath.format.index_file import Extents, IndexedFile, write_index_to
from modyn_dagster.keys import KeyArray, keys_of

ROW = np.dtype([("a", "<f4"), ("kind", "<i4"), ("b", ">i2")])


@dataclass
class RowsOnDisk:
    """Batches 0, 1, ... of random rows; the label of a row is its ``kind``, its time the position in its batch."""

    indexes: dict[int, Path]
    records: npt.NDArray[Any]
    keys: KeyArray

    @classmethod
    def make(cls, home: Path, sizes: list[int], n_kinds: int = 5) -> Self:
        rng = np.random.default_rng(4)
        indexes, records, keys = {}, [], []
        for ordinal, n in enumerate(sizes):
            rows = np.empty(n, dtype=ROW)
            rows["a"], rows["b"], rows["kind"] = rng.normal(3, 2, n), rng.integers(-999, 999, n), rng.integers(0, n_kinds, n)
            indexes[ordinal] = write_batch(
                home, "rows", ordinal, rows.tobytes(), [ROW.itemsize] * n, rows["kind"].astype(np.int64)
            )
            records.append(rows)
            keys.append(keys_of(ordinal, np.arange(n)))
        return cls(indexes, np.concatenate(records), np.concatenate(keys))

    @cached_property
    def store(self) -> SampleStore:
        return SampleStore.open(self.indexes, dtype=ROW)

    def records_of(self, keys: KeyArray) -> npt.NDArray[Any]:
        return self.records[np.searchsorted(self.keys, keys)]


def write_batch(
    home: Path, dataset: str, ordinal: int, content: bytes, lengths: list[int], labels: npt.NDArray[np.int64]
) -> Path:
    """A shard of samples one behind the other, and its index."""
    shard, index = home / "shards" / dataset / f"{ordinal}.bin", home / "batches" / dataset / f"{ordinal}.arrow"
    for path in (shard, index):
        path.parent.mkdir(parents=True, exist_ok=True)
    shard.write_bytes(content)
    size = np.array(lengths, dtype=np.int64)
    extents = Extents.of(np.zeros(len(size), dtype=np.int32), np.cumsum(size) - size, size)
    file = IndexedFile(None, len(content), hashlib.blake2b(content, digest_size=16).hexdigest())
    with index.open("wb") as out:
        write_index_to(out, np.arange(len(size)).view("datetime64[us]"), labels, None, extents, [file])
    return index
