"""Tensors on their way into a file: encoded by several threads, written in order, never more than a few in memory."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from itertools import chain
from typing import BinaryIO, Final

from modyn_dagster.model_store.format.codec import CHUNK, CHUNKS, Codec, Planes, encode_chunk, table
from modyn_dagster.model_store.format.pack import Entry
from modyn_dagster.model_store.format.tensor_sources import Sources, check
from modyn_dagster.model_store.format.threads import batches, worth
from modyn_dagster.model_store.strategies.plan import TINY, Base, Part

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
    with CHUNKS.lent() as buffer:
        codec, planes = begin(part, content[:CHUNK], _base_chunk(part.base, 0, buffer[: content.nbytes]))
        if codec == Codec.RAW:
            return Encoded(codec, [content])
        base = part.base if codec.needs_base else None
        digest = None if base is None or base.source.has_checksums else base.leaf.digest()
        if digest is not None:
            digest.update(buffer[: content.nbytes])
        chunks = [planes]
        for start in range(CHUNK, part.leaf.n_bytes, CHUNK):
            words = content[start : start + CHUNK]
            other = _base_chunk(base, start // CHUNK, buffer[: words.nbytes])
            if digest is not None and other is not None:
                digest.update(other)
            chunks.append(encode_chunk(codec, part.leaf.dtype, words, other))
    found = Encoded(codec, [*chain.from_iterable(chunks), table(chunks)], None if digest is None else digest.hexdigest())
    return Encoded(Codec.RAW, [content]) if found.n_bytes >= part.leaf.n_bytes else found


def begin(part: Part, words: memoryview, base: memoryview | None) -> tuple[Codec, Planes]:
    """How to store a tensor that begins with ``words``, up to a chunk of it, and ``base`` its base with; and these, stored so.

    The difference where it is clearly the smallest; else the smaller of it and planes, judged on a piece; or as it is.
    """
    if part.leaf.n_bytes < TINY:
        return Codec.RAW, [words]
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


def _base_chunk(base: Base | None, chunk: int, out: memoryview) -> memoryview | None:
    if base is None:
        return None
    base.source.read(chunk, out)
    return out


def write_parts(
    file: BinaryIO, parts: Sequence[Part], content: Content, sources: Sources, pool: Executor, ahead: int
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


def _in_order(parts: Sequence[Part], content: Content, pool: Executor, ahead: int) -> Iterator[tuple[Part, Encoded | None]]:
    def encoded(batch: list[Part]) -> list[tuple[Part, Encoded | None]]:
        return [(part, encode(part, content(part.name)) if part.n_bytes else None) for part in batch]

    waiting: deque[Future[list[tuple[Part, Encoded | None]]]] = deque()
    pool = worth(pool, sum(part.n_bytes for part in parts))
    for batch in batches(parts, lambda part: part.n_bytes):
        waiting.append(pool.submit(encoded, batch))
        if len(waiting) > ahead:
            yield from waiting.popleft().result()
    while waiting:
        yield from waiting.popleft().result()
