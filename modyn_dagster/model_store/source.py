"""The bytes of one stored tensor, chunk by chunk, whatever it is stored as and however many differences lie between."""

import os
from itertools import accumulate
from pathlib import PurePath
from typing import Protocol

from modyn_dagster.errors import CorruptFile
from modyn_dagster.model_store.codec import (
    CHUNK,
    CHUNKS,
    BadChunk,
    checksum,
    decode_chunk,
    n_chunks,
    parse_table,
    table_bytes,
)
from modyn_dagster.model_store.dtypes import words_of
from modyn_dagster.model_store.pack import Entry
from modyn_dagster.model_store.record import Leaf


class Source(Protocol):
    """Something that has the bytes of one tensor."""

    @property
    def has_checksums(self) -> bool:
        """Whether ``read`` itself finds every change of what is stored, so that nobody need hash what it gives."""

    def read(self, chunk: int, out: memoryview) -> None:
        """Fill ``out`` with a chunk of the tensor."""


class Plain:
    """Bytes stored as they are, in an open file."""

    has_checksums = False

    def __init__(self, file: int, path: PurePath, name: str, start: int) -> None:
        self._file, self._path, self._name, self._start = file, path, name, start

    def read(self, chunk: int, out: memoryview) -> None:
        """Straight into ``out``."""
        n_read = 0
        while n_read < out.nbytes:
            more = os.preadv(self._file, [out[n_read:]], self._start + chunk * CHUNK + n_read)
            if more == 0:
                raise CorruptFile(self._path, f"{out.nbytes} bytes of tensor {self._name!r}", f"{n_read} bytes")
            n_read += more


class Encoded:
    """Bytes stored as compressed planes, perhaps of the difference to ``base``."""

    def __init__(self, file: int, path: PurePath, name: str, leaf: Leaf, entry: Entry, base: Source | None) -> None:
        self._file, self._path, self._name = file, path, name
        self._codec, self._dtype, self._base = entry.codec, leaf.dtype, base
        n_table = table_bytes(leaf.dtype, leaf.n_bytes)
        text = os.pread(file, n_table, entry.end - n_table)
        if len(text) == n_table:
            self._lengths, self._checksums = parse_table(text, n_chunks(leaf.n_bytes))
        if len(text) != n_table or sum(self._lengths) != entry.end - entry.start - n_table:
            raise CorruptFile(path, f"the planes of tensor {name!r} in {entry.end - entry.start} bytes", "other lengths")
        self._width = words_of(leaf.dtype)[0]
        self._starts = list(accumulate(self._lengths, initial=entry.start))[:: self._width]

    @property
    def has_checksums(self) -> bool:
        """Of this tensor's chunks, and of those of all it is a difference to."""
        return self._base is None or self._base.has_checksums

    def read(self, chunk: int, out: memoryview) -> None:
        """Decompressed, joined, and put on the base."""
        first, end = self._starts[chunk], self._starts[chunk + 1]
        with CHUNKS.lent() as memory, CHUNKS.lent() as other:
            stored, base = memory[: end - first], other[: out.nbytes]
            n_read = os.preadv(self._file, [stored], first)
            if (found := checksum([stored[:n_read]])) != (expected := self._checksums[chunk]):
                name = f"chunk {chunk} of tensor {self._name!r} with XXH3 {expected:016x}"
                raise CorruptFile(self._path, name, f"{found:016x}")
            planes, start = [], 0
            for length in self._lengths[chunk * self._width : (chunk + 1) * self._width]:
                planes.append(stored[start : start + length])
                start += length
            if self._base is not None:
                self._base.read(chunk, base)
            try:
                decode_chunk(self._codec, self._dtype, planes, None if self._base is None else base, out)
            except BadChunk as error:
                name = f"chunk {chunk} of tensor {self._name!r} as {error.args[0]}"
                raise CorruptFile(self._path, name, "other bytes") from error


def read_verified(source: Source, leaf: Leaf, out: memoryview) -> str:
    """Fill ``out`` with a tensor and return the hash of what came."""
    digest = leaf.digest()
    for chunk, start in enumerate(range(0, leaf.n_bytes, CHUNK)):
        part = out[start : start + CHUNK]
        source.read(chunk, part)
        # While the chunk is still in the cache.
        digest.update(part)
    return digest.hexdigest()


def read_unverified(source: Source, leaf: Leaf, out: memoryview) -> None:
    """Fill ``out`` with a tensor, as it comes."""
    for chunk, start in enumerate(range(0, leaf.n_bytes, CHUNK)):
        source.read(chunk, out[start : start + CHUNK])
