"""Tensors on their way into a file: encoded by several threads, written in order, never more than a few in memory."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from itertools import chain
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.model_store.codec import CHUNK, Codec, Planes, encode_chunk, table
from modyn_dagster.model_store.pack import Entry
from modyn_dagster.model_store.planning import Base, Part
from modyn_dagster.model_store.sources import Sources, check

# A piece of this size tells whether planes are smaller than a difference.
_PIECE: Final = 64 << 10
# A difference that leaves so little of a tensor: planes of weights, which save their exponents, leave more.
_CLEAR: Final = 0.6

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
    """One tensor by the codec that its beginning says is best."""
    first = None if part.base is None else read_chunk(part.base, 0, min(CHUNK, part.leaf.n_bytes))
    codec, planes = begin(part, content[:CHUNK], first)
    if codec == Codec.RAW:
        return Encoded(codec, [content])
    base = part.base if codec.needs_base else None
    digest = None if base is None or base.source.has_checksums else base.leaf.digest()
    if digest is not None and first is not None:
        digest.update(first.data)
    chunks = [planes]
    for start in range(CHUNK, part.leaf.n_bytes, CHUNK):
        words = content[start : start + CHUNK]
        other = None if base is None else read_chunk(base, start // CHUNK, words.nbytes)
        if digest is not None and other is not None:
            digest.update(other.data)
        chunks.append(encode_chunk(codec, part.leaf.dtype, words, other))
    found = Encoded(codec, [*chain.from_iterable(chunks), table(chunks)], None if digest is None else digest.hexdigest())
    return Encoded(Codec.RAW, [content]) if found.n_bytes >= part.leaf.n_bytes else found


def begin(part: Part, words: memoryview, base: npt.NDArray[np.uint8] | None) -> tuple[Codec, Planes]:
    """How to store a tensor that begins with ``words``, up to a chunk of it, and ``base`` its base with; and these, stored so.

    The difference where it is clearly the smallest; else the smaller of it and planes, judged on a piece; or as it is.
    """
    dtype = part.leaf.dtype
    difference: Planes | None = None
    best = float(words.nbytes)
    if base is not None:
        difference = encode_chunk(part.codec, dtype, words, base)
        if (size := _size(difference)) <= _CLEAR * words.nbytes:
            return part.codec, difference
        best = min(best, size)
    piece = words[:_PIECE]
    planes = encode_chunk(Codec.PLANES, dtype, piece, None)
    share = _size(planes) / piece.nbytes
    if share < 1 and share * words.nbytes <= best:
        return Codec.PLANES, planes if piece.nbytes == words.nbytes else encode_chunk(Codec.PLANES, dtype, words, None)
    return (part.codec, difference) if difference is not None and best < words.nbytes else (Codec.RAW, [words])


def _size(planes: Planes) -> int:
    return sum(len(plane) for plane in planes)


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
