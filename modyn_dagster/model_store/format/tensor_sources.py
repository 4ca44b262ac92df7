"""Bytes of stored tensors, chunk by chunk: plain, compressed, or as a chain of differences through other models' files."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from itertools import accumulate
from pathlib import PurePath
from types import TracebackType
from typing import Final, Protocol

import numpy as np

from modyn_dagster.errors import CorruptFile, UnknownModel
from modyn_dagster.model_store.format.codec import (
    CHUNK,
    CHUNKS,
    BadChunk,
    Codec,
    checksum,
    decode_chunk,
    n_chunks,
    parse_table,
    table_bytes,
)
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.model_file import Stored
from modyn_dagster.model_store.format.pack import Entry
from modyn_dagster.model_store.format.record import Leaf
from modyn_dagster.model_store.format.tensors import words_of


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


#: Differences on top of each other that are followed at most; a cycle of bases ends here.
MAX_DEPTH: Final = 32


class Sources(AbstractContextManager["Sources"]):
    """Sources of the tensors of models that ``find`` opens, in files that ``opened`` opens and that are closed at the end."""

    def __init__(self, find: Callable[[ModelId], Stored], opened: Callable[[PurePath], int]) -> None:
        self._find = find
        self._opened = opened
        self._models: dict[ModelId, Stored] = {}
        self._files: dict[PurePath, int] = {}
        self._closing = ExitStack()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.close()

    def model(self, model: ModelId) -> Stored:
        """A model, read once."""
        if model not in self._models:
            self._models[model] = self._find(model)
        return self._models[model]

    def of(self, stored: Stored, name: str, depth: int = 0) -> Source:
        """Where the bytes of a tensor come from. ``CorruptFile`` for references that lead nowhere, or in a circle."""
        stored, name = self.home(stored, name)
        leaf, entry = stored.record.leaves[name], stored.entries[name]
        file = self._open(stored.path)
        if entry.codec == Codec.RAW:
            return Plain(file, stored.path, name, entry.start)
        base: Source | None = None
        if entry.base is not None:
            if depth >= MAX_DEPTH:
                expected = f"tensor {name!r} after at most {MAX_DEPTH} differences"
                raise CorruptFile(stored.path, expected, "more, or a cycle of bases")
            base = self.of(*self.base(stored, name), depth + 1)
        return Encoded(file, stored.path, name, leaf, entry, base)

    def home(self, stored: Stored, name: str) -> tuple[Stored, str]:
        """The model whose file holds a tensor, and its name there."""
        entry = stored.entries[name]
        if entry.codec != Codec.ELSEWHERE:
            return stored, name
        leaf = stored.record.leaves[name]
        found, other = self._held(stored, name, entry.home, leaf.hash)
        if found.record.leaves[other] != leaf:
            raise CorruptFile(stored.path, f"tensor {name!r} as one of its kind", f"another kind in model {entry.home}")
        return found, other

    def base(self, stored: Stored, name: str) -> tuple[Stored, str]:
        """The model whose file holds the tensor that this one is a difference to, and its name there."""
        entry = stored.entries[name]
        found, other = self._held(stored, name, entry.home, entry.base)
        leaf, expected = found.record.leaves[other], stored.record.leaves[name]
        if (leaf.dtype, leaf.n_bytes) != (expected.dtype, expected.n_bytes):
            raise CorruptFile(stored.path, f"tensor {name!r} as a difference to one of its kind", f"{leaf.dtype} {leaf.shape}")
        return found, other

    def depth(self, stored: Stored, name: str) -> int:
        """Differences to apply until the tensor is there."""
        depth = 0
        stored, name = self.home(stored, name)
        while stored.entries[name].base is not None and depth < MAX_DEPTH:
            stored, name = self.base(stored, name)
            depth += 1
        return depth

    def _held(self, stored: Stored, name: str, home: ModelId | None, leaf: str | None) -> tuple[Stored, str]:
        try:
            found = None if home is None else self.model(home)
        except UnknownModel as error:
            raise CorruptFile(stored.path, f"tensor {name!r} with the help of model {home}", "no model of that id") from error
        if found is None or leaf is None or leaf not in found.held:
            raise CorruptFile(stored.path, f"tensor {name!r} with the help of model {home}", "no such tensor there")
        return found, found.held[leaf]

    def _open(self, path: PurePath) -> int:
        if path not in self._files:
            self._files[path] = self._opened(path)
            self._closing.callback(os.close, self._files[path])
        return self._files[path]


def check(sources: Sources, stored: Stored, name: str, found: str) -> None:
    """Raise ``CorruptFile`` that names the tensor, and the file at fault, when ``found`` is not its hash."""
    expected = stored.record.leaves[name].hash
    if found == expected:
        return
    stored, name = sources.home(stored, name)
    while stored.entries[name].base is not None:
        base, base_name = sources.base(stored, name)
        leaf = base.record.leaves[base_name]
        scratch = np.empty(leaf.n_bytes, np.uint8)
        if (there := read_verified(sources.of(base, base_name), leaf, scratch.data)) == leaf.hash:
            break
        stored, name, expected, found = base, base_name, leaf.hash, there
    raise CorruptFile(stored.path, f"tensor {name!r} with hash {expected}", f"hash {found}")
