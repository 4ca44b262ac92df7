"""Tensors on their way into a file: encoded by several threads, written in order, never more than a few in memory."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from itertools import chain
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.model_store.codec import CHUNK, Codec, encode_chunk, table
from modyn_dagster.model_store.hash_tree import leaf_digest
from modyn_dagster.model_store.pack import Entry
from modyn_dagster.model_store.planning import Base, Part
from modyn_dagster.model_store.sources import Sources, check

# A piece of this size tells which codec is best for a tensor.
_SAMPLE: Final = 64 << 10

#: The bytes of a tensor, by its name.
Content = Callable[[str], memoryview]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A tensor as it goes into the file."""

    codec: Codec
    pieces: list[bytes | memoryview]
    #: Hash of the base as it was read; it must be the recorded one. None where checksums of its chunks were compared instead.
    base_hash: str | None = None

    @property
    def n_bytes(self) -> int:
        """Bytes in the file."""
        return sum(memoryview(piece).nbytes for piece in self.pieces)


def encode(part: Part, content: memoryview) -> Encoded:
    """One tensor by the codec that a piece of it says is best."""
    first = None if part.base is None else read_chunk(part.base, 0, min(CHUNK, part.leaf.n_bytes))
    codec = best_codec(part, content, first)
    if codec == Codec.RAW:
        return Encoded(codec, [content])
    base = part.base if codec.needs_base else None
    digest = None if base is None or base.source.has_checksums else leaf_digest(base.leaf.dtype, base.leaf.shape)
    chunks: list[list[bytes]] = []
    for chunk, start in enumerate(range(0, part.leaf.n_bytes, CHUNK)):
        words = content[start : start + CHUNK]
        other = None if base is None else first if chunk == 0 else read_chunk(base, chunk, words.nbytes)
        if digest is not None and other is not None:
            digest.update(other.data)
        chunks.append(encode_chunk(codec, part.leaf.dtype, words, other))
    found = Encoded(codec, [*chain.from_iterable(chunks), table(chunks)], None if digest is None else digest.hexdigest())
    return Encoded(Codec.RAW, [content]) if found.n_bytes >= part.leaf.n_bytes else found


def best_codec(part: Part, content: memoryview, base: npt.NDArray[np.uint8] | None) -> Codec:
    """The smallest on the beginning of the tensor: as it is, planes, or the difference to ``base``, the base's first chunk."""
    words = content[:_SAMPLE]
    sizes = {Codec.PLANES: _size(Codec.PLANES, part, words, None)}
    if base is not None:
        sizes[part.codec] = _size(part.codec, part, words, base[: words.nbytes])
    best = min(sizes, key=lambda codec: (sizes[codec], codec))
    return best if sizes[best] < words.nbytes else Codec.RAW


def _size(codec: Codec, part: Part, words: memoryview, base: npt.NDArray[np.uint8] | None) -> int:
    return sum(len(plane) for plane in encode_chunk(codec, part.leaf.dtype, words, base))


def read_chunk(base: Base, chunk: int, n_bytes: int) -> npt.NDArray[np.uint8]:
    """A chunk of the base."""
    out = np.empty(n_bytes, np.uint8)
    base.source.read(chunk, out.data)
    return out


def write_parts(
    file: BinaryIO, parts: Iterable[Part], content: Content, sources: Sources, pool: Executor, ahead: int
) -> dict[str, Entry]:
    """Append the tensors that are not elsewhere, and say where each is.

    ``CorruptFile`` when a base is not what it was: a difference to it could never be undone.
    """
    entries, end = {}, file.tell()
    for part, encoded in _in_order(parts, content, pool, ahead):
        if encoded is None:
            entries[part.name] = part.entry or Entry(Codec.RAW, end, end)
            continue
        if encoded.base_hash is not None and part.base is not None:
            check(sources, part.base.stored, part.base.name, encoded.base_hash)
        for piece in encoded.pieces:
            file.write(piece)
        entry = Entry(encoded.codec, end, end + encoded.n_bytes)
        if encoded.codec.needs_base and part.base is not None:
            entry = replace(entry, home=part.base.home, base=part.base.leaf.hash)
        entries[part.name] = entry
        end = entry.end
    return entries


def _in_order(parts: Iterable[Part], content: Content, pool: Executor, ahead: int) -> Iterator[tuple[Part, Encoded | None]]:
    waiting: deque[tuple[Part, Future[Encoded] | None]] = deque()
    for part in parts:
        waiting.append((part, pool.submit(encode, part, content(part.name)) if part.n_bytes else None))
        if len(waiting) > ahead:
            yield _result(*waiting.popleft())
    while waiting:
        yield _result(*waiting.popleft())


def _result(part: Part, future: "Future[Encoded] | None") -> tuple[Part, Encoded | None]:
    return part, None if future is None else future.result()
