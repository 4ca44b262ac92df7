"""Stores made of bytes that a test knows, and the plain Python that reads them as it should be."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fastpath import FixedRows, SampleStore
from fastpath.format.blocks import block_digests
from fastpath.format.index_file import Extents, IndexedFile, write_index_to


@dataclass(frozen=True)
class PlacedSample:
    """One sample: in which of its batch's files, after how many other bytes, and its bytes."""

    file: int
    gap: int
    content: bytes


@dataclass
class MadeBatch:
    """Samples in key order. File ``shard`` of the batch is its shard, the others are read in place."""

    ordinal: int
    samples: Sequence[PlacedSample]
    shard: int = -1
    compress: bool = True
    # In which order samples were laid down in their files.
    layout: Sequence[int] = field(default_factory=list)


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


class MadeStore:
    """Files of a dataset below a folder. Labels are keys modulo 1,000 and times keys modulo 2**40, unless left out."""

    def __init__(
        self, home: Path, batches: Sequence[MadeBatch], *, labels: str | None = "labels", with_blocks: bool = True
    ) -> None:
        self.with_blocks = with_blocks
        self.home, self.root, self.batches, self.labels = home, home / "root", batches, labels
        self.indexes: dict[int, Path] = {}
        self.checksums: dict[int, str] = {}
        self.modified: dict[str, int] = {}
        self.content: dict[int, bytes] = {}
        self.files: dict[tuple[int, int], Path] = {}
        for batch in batches:
            self._write(batch)

    @property
    def keys(self) -> np.ndarray:
        return np.array(list(self.content), dtype=np.uint64)

    def open(self, **arguments: Any) -> SampleStore:
        known: dict[str, Any] = {"dataset": "d", "root": self.root, "home": self.home}
        known |= {"checksums": self.checksums, "modified": self.modified}
        return SampleStore.open(self.indexes, **(known | arguments))

    def label(self, key: int) -> int:
        return key % 1000

    def time(self, key: int) -> np.datetime64:
        return np.datetime64(key % 2**40, "us")

    def _write(self, batch: MadeBatch) -> None:
        n_files = max((sample.file for sample in batch.samples), default=0) + 1
        content = [bytearray() for _ in range(n_files)]
        offsets = np.zeros(len(batch.samples), dtype=np.int64)
        for i in batch.layout or range(len(batch.samples)):
            sample = batch.samples[i]
            content[sample.file] += b"\xee" * sample.gap
            offsets[i] = len(content[sample.file])
            content[sample.file] += sample.content
        files = [self._write_file(batch, i, bytes(data)) for i, data in enumerate(content)]
        places = (
            np.array([sample.file for sample in batch.samples], dtype=np.int32),
            offsets,
            np.array([len(sample.content) for sample in batch.samples], dtype=np.int64),
        )
        keys = [batch.ordinal << 32 | i for i in range(len(batch.samples))]
        self.content |= {key: sample.content for key, sample in zip(keys, batch.samples)}
        path = self.home / "batches" / "d" / f"{batch.ordinal}.arrow"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            write_index_to(
                out,
                np.array([self.time(key) for key in keys], dtype="datetime64[us]"),
                np.array([self.label(key) for key in keys], dtype=np.int64) if self.labels == "labels" else None,
                np.array([self.label(key) for key in keys], dtype=np.float64) if self.labels == "targets" else None,
                Extents.of(*places) if batch.compress else Extents(*places),
                files,
            )
        self.indexes[batch.ordinal] = path
        self.checksums[batch.ordinal] = digest(path.read_bytes())

    def _write_file(self, batch: MadeBatch, i: int, data: bytes) -> IndexedFile:
        name = None if i == batch.shard else f"{batch.ordinal}_{i}.bin"
        path = self.root / name if name else self.home / "shards" / "d" / f"{batch.ordinal}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.files[batch.ordinal, i] = path
        if name:
            self.modified[name] = path.stat().st_mtime_ns
        blocks = block_digests(np.frombuffer(data, np.uint8)).tobytes() if self.with_blocks else None
        return IndexedFile(name, len(data), digest(data), blocks)


def rows(store: SampleStore, keys: np.ndarray) -> np.ndarray:
    """``store.read`` where all samples have one width."""
    found = store.read(keys)
    assert isinstance(found, FixedRows)
    return found.rows


ORDINALS = st.one_of(st.integers(0, 5), st.integers(0, 2**31 - 1))


@st.composite
def batches(draw: st.DrawFn, width: int | None = None) -> list[MadeBatch]:
    """Batches in every shape that an index can have: one run, several, a place per sample; several files, shards, gaps."""
    ordinals = draw(st.lists(ORDINALS, min_size=1, max_size=5, unique=True))
    return [draw(_batch(ordinal, width)) for ordinal in ordinals]


@st.composite
def _batch(draw: st.DrawFn, ordinal: int, width: int | None) -> MadeBatch:
    n = draw(st.one_of(st.just(1), st.integers(1, 12)))
    n_files = draw(st.integers(1, 3))
    lengths = st.just(width) if width is not None else st.sampled_from([0, 1, 3, 3, 3, 17, 70])
    gaps = st.sampled_from([0, 0, 0, 2])
    file = st.integers(0, n_files - 1)
    samples = []
    for i in range(n):
        length = draw(lengths)
        content = bytes((ordinal + 7 * i + 3 * k) % 251 for k in range(length))
        samples.append(PlacedSample(draw(file), draw(gaps), content))
    if draw(st.booleans()):
        samples.sort(key=lambda sample: (sample.file, len(sample.content)))
    layout = draw(st.permutations(range(n))) if draw(st.booleans()) else []
    return MadeBatch(ordinal, samples, draw(st.integers(-1, n_files - 1)), draw(st.booleans()), layout)


def one_file_of_rows(home: Path, n: int, width: int = 8, ordinals: Sequence[int] = (0,), shard: int = -1) -> MadeStore:
    """Batches of one file with rows one behind the other; row i of batch b is ``b + i`` in ``width`` bytes."""
    made = [
        MadeBatch(ordinal, [PlacedSample(0, 0, (ordinal + i).to_bytes(width, "little")) for i in range(n)], shard)
        for ordinal in ordinals
    ]
    return MadeStore(home, made)
