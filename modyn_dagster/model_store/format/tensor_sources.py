"""Sources of the bytes of stored tensors, chunk by chunk: plain, compressed, or a chain of differences through other files."""

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
    CHUNK_BUFFERS,
    BadChunk,
    Codec,
    checksum,
    decode_chunk,
    n_chunks,
    parse_table,
    table_bytes,
)
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.model_file import StoredModel
from modyn_dagster.model_store.format.pack import Entry
from modyn_dagster.model_store.format.record import Leaf
from modyn_dagster.model_store.format.tensors import words_of


class TensorSource(Protocol):
    """Source of the bytes of one tensor."""

    @property
    def has_checksums(self) -> bool:
        """True if ``read`` finds every change of the stored bytes by itself, so that hashing its result is unnecessary."""

    def read(self, chunk: int, out: memoryview) -> None:
        """Fill ``out`` with a chunk of the tensor."""


class PlainSource:
    """Bytes stored unencoded in an open file."""

    has_checksums = False

    def __init__(self, file: int, path: PurePath, name: str, start: int) -> None:
        self._file, self._path, self._name, self._start = file, path, name, start

    def read(self, chunk: int, out: memoryview) -> None:
        """Read straight into ``out``."""
        n_read = 0
        while n_read < out.nbytes:
            more = os.preadv(self._file, [out[n_read:]], self._start + chunk * CHUNK + n_read)
            if more == 0:
                raise CorruptFile(self._path, f"{out.nbytes} bytes of tensor {self._name!r}", f"{n_read} bytes")
            n_read += more


class EncodedSource:
    """Bytes stored as compressed planes, perhaps of the difference to ``base``."""

    def __init__(self, file: int, path: PurePath, name: str, leaf: Leaf, entry: Entry, base: TensorSource | None) -> None:
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
        """True if all tensors along the chain of differences have checksums."""
        return self._base is None or self._base.has_checksums

    def read(self, chunk: int, out: memoryview) -> None:
        """Decompress, join, and apply the difference to the base."""
        first, end = self._starts[chunk], self._starts[chunk + 1]
        with CHUNK_BUFFERS.borrow() as stored_buffer, CHUNK_BUFFERS.borrow() as base_buffer:
            stored, base = stored_buffer[: end - first], base_buffer[: out.nbytes]
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


def read_verified(source: TensorSource, leaf: Leaf, out: memoryview) -> str:
    """Fill ``out`` with a tensor and return the hash of the bytes."""
    digest = leaf.digest()
    for chunk, start in enumerate(range(0, leaf.n_bytes, CHUNK)):
        part = out[start : start + CHUNK]
        source.read(chunk, part)
        # Hashed while the chunk is still in the cache.
        digest.update(part)
    return digest.hexdigest()


def read_unverified(source: TensorSource, leaf: Leaf, out: memoryview) -> None:
    """Fill ``out`` with a tensor without hashing it."""
    for chunk, start in enumerate(range(0, leaf.n_bytes, CHUNK)):
        source.read(chunk, out[start : start + CHUNK])


#: Longest chain of differences that is followed; a cycle of bases ends here.
MAX_DEPTH: Final = 32


class TensorSources(AbstractContextManager["TensorSources"]):
    """Sources of the tensors of several models; the opened files are closed at the end of the block.

    Args:
        open_model: opens a model by id.
        open_file: opens a file by path and returns its descriptor.
    """

    def __init__(self, open_model: Callable[[ModelId], StoredModel], open_file: Callable[[PurePath], int]) -> None:
        self._open_model = open_model
        self._open_file = open_file
        self._models: dict[ModelId, StoredModel] = {}
        self._files: dict[PurePath, int] = {}
        self._closing = ExitStack()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.close()

    def model(self, model: ModelId) -> StoredModel:
        """The model with this id, opened once."""
        if model not in self._models:
            self._models[model] = self._open_model(model)
        return self._models[model]

    def open(self, stored: StoredModel, name: str, depth: int = 0) -> TensorSource:
        """Open the source of a tensor. ``CorruptFile`` for references without a target, or in a circle."""
        stored, name = self.holder(stored, name)
        leaf, entry = stored.record.leaves[name], stored.entries[name]
        file = self._file_of(stored.path)
        if entry.codec == Codec.RAW:
            return PlainSource(file, stored.path, name, entry.start)
        base: TensorSource | None = None
        if entry.base is not None:
            if depth >= MAX_DEPTH:
                expected = f"tensor {name!r} after at most {MAX_DEPTH} differences"
                raise CorruptFile(stored.path, expected, "more, or a cycle of bases")
            base = self.open(*self.delta_base(stored, name), depth + 1)
        return EncodedSource(file, stored.path, name, leaf, entry, base)

    def holder(self, stored: StoredModel, name: str) -> tuple[StoredModel, str]:
        """Model whose file holds a tensor, and the name of the tensor there."""
        entry = stored.entries[name]
        if entry.codec != Codec.ELSEWHERE:
            return stored, name
        leaf = stored.record.leaves[name]
        model, other = self._tensor_in(stored, name, entry.holder, leaf.hash)
        if model.record.leaves[other] != leaf:
            raise CorruptFile(stored.path, f"tensor {name!r} as one of its kind", f"another kind in model {entry.holder}")
        return model, other

    def delta_base(self, stored: StoredModel, name: str) -> tuple[StoredModel, str]:
        """Model whose file holds the tensor that a difference refers to, and the name of that tensor there."""
        entry = stored.entries[name]
        model, other = self._tensor_in(stored, name, entry.holder, entry.base)
        leaf, expected = model.record.leaves[other], stored.record.leaves[name]
        if (leaf.dtype, leaf.n_bytes) != (expected.dtype, expected.n_bytes):
            raise CorruptFile(stored.path, f"tensor {name!r} as a difference to one of its kind", f"{leaf.dtype} {leaf.shape}")
        return model, other

    def depth(self, stored: StoredModel, name: str) -> int:
        """Number of differences to apply to recover a tensor."""
        depth = 0
        stored, name = self.holder(stored, name)
        while stored.entries[name].base is not None and depth < MAX_DEPTH:
            stored, name = self.delta_base(stored, name)
            depth += 1
        return depth

    def _tensor_in(self, stored: StoredModel, name: str, holder: ModelId | None, leaf: str | None) -> tuple[StoredModel, str]:
        try:
            model = None if holder is None else self.model(holder)
        except UnknownModel as error:
            raise CorruptFile(stored.path, f"tensor {name!r} with the help of model {holder}", "no model of that id") from error
        if model is None or leaf is None or leaf not in model.own_tensors:
            raise CorruptFile(stored.path, f"tensor {name!r} with the help of model {holder}", "no such tensor there")
        return model, model.own_tensors[leaf]

    def _file_of(self, path: PurePath) -> int:
        if path not in self._files:
            self._files[path] = self._open_file(path)
            self._closing.callback(os.close, self._files[path])
        return self._files[path]


def require_hash(sources: TensorSources, stored: StoredModel, name: str, found: str) -> None:
    """Raise ``CorruptFile`` unless a tensor has its recorded hash; the error names the tensor and the file at fault."""
    expected = stored.record.leaves[name].hash
    if found == expected:
        return
    stored, name = sources.holder(stored, name)
    while stored.entries[name].base is not None:
        base, base_name = sources.delta_base(stored, name)
        leaf = base.record.leaves[base_name]
        scratch = np.empty(leaf.n_bytes, np.uint8)
        if (there := read_verified(sources.open(base, base_name), leaf, scratch.data)) == leaf.hash:
            break
        stored, name, expected, found = base, base_name, leaf.hash, there
    raise CorruptFile(stored.path, f"tensor {name!r} with hash {expected}", f"hash {found}")
