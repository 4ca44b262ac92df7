"""Small stores on disk whose samples say which key they have."""

import hashlib
from pathlib import Path

import numpy as np

from fastpath import SampleStore
from fastpath.format.index_file import Extents, IndexedFile, write_index_to

#: A row: its key, and bytes that follow from it.
ROW = np.dtype([("key", "<u8"), ("value", "<f4"), ("code", "<i2", (3,))])


def rows_of(keys: np.ndarray) -> np.ndarray:
    rows = np.zeros(len(keys), dtype=ROW)
    rows["key"], rows["value"] = keys, keys % np.uint64(1000)
    rows["code"] = (keys % np.uint64(100)).astype(np.int16)[:, None] + np.arange(3, dtype=np.int16)
    return rows


def text_of(key: int) -> bytes:
    return f"{key}:".encode() + b"x" * (key % 7)


def row_store(home: Path, sizes: tuple[int, ...] = (700, 300), dataset: str = "rows") -> tuple[SampleStore, np.ndarray]:
    """A store of fixed rows, a file per batch, and all its keys."""
    keys = [np.arange(n, dtype=np.uint64) + np.uint64(ordinal << 32) for ordinal, n in enumerate(sizes)]
    paths = [_write(home, dataset, i, batch, [row.tobytes() for row in rows_of(batch)]) for i, batch in enumerate(keys)]
    return SampleStore.open(paths), np.concatenate(keys)


def text_store(home: Path, n: int = 500, dataset: str = "texts") -> tuple[SampleStore, np.ndarray]:
    """A store of samples of different lengths, in one shard, and all its keys."""
    keys = np.arange(n, dtype=np.uint64)
    return SampleStore.open([_write(home, dataset, 0, keys, [text_of(key) for key in keys.tolist()])]), keys


def _write(home: Path, dataset: str, ordinal: int, keys: np.ndarray, samples: list[bytes]) -> Path:
    content, lengths = b"".join(samples), np.array([len(sample) for sample in samples], dtype=np.int64)
    shard = home / "shards" / dataset / f"{ordinal}.bin"
    shard.parent.mkdir(parents=True, exist_ok=True)
    shard.write_bytes(content)
    index = home / "batches" / dataset / f"{ordinal}.arrow"
    index.parent.mkdir(parents=True, exist_ok=True)
    n = len(keys)
    offsets = np.cumsum(lengths) - lengths
    extents = Extents.of(np.zeros(n, dtype=np.int32), offsets, lengths)
    times = np.datetime64("2024-01-01", "us") + keys.astype(np.int64).astype("timedelta64[s]")
    labels = (keys % np.uint64(5)).astype(np.int64)
    file = IndexedFile(None, len(content), hashlib.blake2b(content, digest_size=16).hexdigest())
    with index.open("wb") as out:
        write_index_to(out, times, labels, None, extents, [file])
    return index
