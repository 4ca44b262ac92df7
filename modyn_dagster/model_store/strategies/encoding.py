"""Encoding of tensors for a file: by several threads, written in order, with only a few in memory at a time."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from itertools import chain
from typing import BinaryIO, Final

from modyn_dagster.model_store.format.codec import CHUNK, CHUNK_BUFFERS, Codec, Planes, encode_chunk, table
from modyn_dagster.model_store.format.pack import Entry
from modyn_dagster.model_store.format.tensor_sources import TensorSources, require_hash
from modyn_dagster.model_store.format.threads import batches, executor_for
from modyn_dagster.model_store.strategies.plan import MIN_ENCODED_BYTES, DeltaBase, PlannedTensor

# A piece of this size shows whether planes are smaller than a difference.
_PIECE: Final = 64 << 10
# Share of the bytes below which a difference wins without a comparison: planes of weights, which save exponents, need more.
_CLEAR_WIN: Final = 0.6

#: Function that returns the bytes of a tensor by name.
TensorBytes = Callable[[str], memoryview]


@dataclass(frozen=True, slots=True)
class EncodedTensor:
    """Encoded tensor, ready for the file."""

    codec: Codec
    pieces: list[bytes | memoryview]
    #: Hash of the base as read, to compare with the recorded one. None where the chunks of the base have checksums.
    base_hash: str | None = None

    @property
    def n_bytes(self) -> int:
        """Bytes in the file."""
        return sum(memoryview(piece).nbytes for piece in self.pieces)


def encode(part: PlannedTensor, content: memoryview) -> EncodedTensor:
    """Encode one tensor with the codec that is best for its first chunk."""
    with CHUNK_BUFFERS.borrow() as buffer:
        codec, planes = choose_codec(part, content[:CHUNK], _base_chunk(part.base, 0, buffer[: content.nbytes]))
        if codec == Codec.RAW:
            return EncodedTensor(codec, [content])
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
    pieces = [*chain.from_iterable(chunks), table(chunks)]
    encoded = EncodedTensor(codec, pieces, None if digest is None else digest.hexdigest())
    return EncodedTensor(Codec.RAW, [content]) if encoded.n_bytes >= part.leaf.n_bytes else encoded


def choose_codec(part: PlannedTensor, words: memoryview, base: memoryview | None) -> tuple[Codec, Planes]:
    """Best codec for a tensor, and its first chunk encoded.

    A difference that is clearly small wins; else the smallest of difference, planes (estimated on a piece) and the raw bytes.

    Args:
        part: the tensor.
        words: its first bytes, at most a chunk.
        base: the same bytes of the base.
    """
    if part.leaf.n_bytes < MIN_ENCODED_BYTES:
        return Codec.RAW, [words]
    dtype = part.leaf.dtype
    difference: Planes | None = None
    best = float(words.nbytes)
    if base is not None:
        difference = encode_chunk(part.codec, dtype, words, base)
        if (size := _size(difference)) <= _CLEAR_WIN * words.nbytes:
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


def _base_chunk(base: DeltaBase | None, chunk: int, out: memoryview) -> memoryview | None:
    if base is None:
        return None
    base.source.read(chunk, out)
    return out


def write_parts(
    file: BinaryIO, parts: Sequence[PlannedTensor], content: TensorBytes, sources: TensorSources, pool: Executor, ahead: int
) -> dict[str, Entry]:
    """Append the tensors that no other file holds, and return the place of each.

    ``CorruptFile`` for a base that changed: a difference to it could never be undone.
    """
    entries, end = {}, file.tell()
    for part, encoded in _encode_ahead(parts, content, pool, ahead):
        if encoded is None:
            entries[part.name] = part.entry or Entry(Codec.RAW, end, end)
            continue
        if encoded.base_hash is not None and part.base is not None:
            require_hash(sources, part.base.stored, part.base.name, encoded.base_hash)
        for piece in encoded.pieces:
            file.write(piece)
        entry = Entry(encoded.codec, end, end + encoded.n_bytes)
        if encoded.codec.needs_base and part.base is not None:
            entry = replace(entry, holder=part.base.holder, base=part.base.leaf.hash)
        entries[part.name] = entry
        end = entry.end
    return entries


#: Tensors of a batch, each encoded unless another file holds it.
_Encoded = list[tuple[PlannedTensor, EncodedTensor | None]]


def _encode_ahead(
    parts: Sequence[PlannedTensor], content: TensorBytes, pool: Executor, ahead: int
) -> Iterator[tuple[PlannedTensor, EncodedTensor | None]]:
    def encode_batch(batch: list[PlannedTensor]) -> _Encoded:
        return [(part, encode(part, content(part.name)) if part.n_bytes else None) for part in batch]

    pending: deque[Future[_Encoded]] = deque()
    pool = executor_for(pool, sum(part.n_bytes for part in parts))
    for batch in batches(parts, lambda part: part.n_bytes):
        pending.append(pool.submit(encode_batch, batch))
        if len(pending) > ahead:
            yield from pending.popleft().result()
    while pending:
        yield from pending.popleft().result()
