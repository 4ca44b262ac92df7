"""Packed file of a model that is no plain snapshot: tensors and header in one, so that one rename commits both.

``MAGIC | tensors | header, zstd | SHA-256 of that | its length, its length when decompressed (uint64) | MAGIC``. The header
is JSON: ``about`` (``ModelMetadata``), ``order``, ``ties``, ``hashing``, and ``tensors``: name to
``[dtype, shape, hash, codec, start, end, holder, hash of the base tensor]``. The tensors cover the file without gap.
"""

import hashlib
import json
import os
import reprlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, BinaryIO, Final

import zstandard

from modyn_dagster.errors import CorruptFile
from modyn_dagster.model_store.format.codec import Codec, table_bytes
from modyn_dagster.model_store.format.hash_tree import HASHING
from modyn_dagster.model_store.format.metadata import ModelMetadata
from modyn_dagster.model_store.format.record import Leaf, Record, require_blake3
from modyn_dagster.model_store.format.safetensors_header import MAX_HEADER, require_readable
from modyn_dagster.model_store.format.tensors import DTYPE_BY_NAME, is_shape, name_of
from modyn_dagster.values.json_values import compact_json

MAGIC: Final = b"MODYNPK1"
_CODECS: Final[Mapping[str, Codec]] = {str(codec): codec for codec in Codec}
_END: Final = struct.Struct("<32sQQ8s")


@dataclass(frozen=True, slots=True)
class Entry:
    """Place of the bytes of one tensor.

    Attributes:
        codec: encoding of the bytes.
        start: first byte in the file of the model; 0 when elsewhere.
        end: end of the bytes.
        holder: the model whose file holds the tensor, if elsewhere, or the tensor that a difference refers to.
        base: hash of the tensor that a difference refers to.
    """

    codec: Codec
    start: int = 0
    end: int = 0
    holder: str | None = None
    base: str | None = None


def write_footer(file: BinaryIO, record: Record, entries: Mapping[str, Entry], metadata: ModelMetadata) -> None:
    """Write the header and the end of the file; ``entries`` is empty for a model without weights."""
    tensors = {name: _row(leaf, entries.get(name)) for name, leaf in record.leaves.items()}
    content = {
        "about": metadata.to_json(),
        "order": record.order,
        "ties": record.ties,
        "tensors": tensors,
        "hashing": HASHING,
    }
    text = compact_json(content).encode()
    header = zstandard.ZstdCompressor(write_content_size=True).compress(text)
    require_readable(len(text), _max_text(len(header)))
    file.write(header)
    file.write(_END.pack(hashlib.sha256(header).digest(), len(header), len(text), MAGIC))


def read_pack(file: BinaryIO, path: PurePath) -> tuple[Record, Mapping[str, Entry], ModelMetadata]:
    """Parse and check everything but the tensors; ``CorruptFile`` describes the fault."""
    content, header_start = _content(file, path)
    match content:
        case {"about": about, "order": list(order), "ties": dict(ties), "tensors": dict(tensors)}:
            pass
        case _:
            raise CorruptFile(path, "the header of a model", reprlib.repr(content))
    try:
        metadata = ModelMetadata.parse(about)
    except ValueError as error:
        raise CorruptFile(path, "the metadata of a model", str(error)) from error
    require_blake3(content, path)
    rows = {name: _parse_row(name, row, path) for name, row in tensors.items()}
    _check_names(order, ties, tensors, path)
    record = Record(tuple(order), {name: rows[name][0] for name in order if name not in ties}, ties)
    entries = {name: entry for name, (_, entry) in rows.items() if entry is not None}
    if entries and len(entries) != len(rows):
        raise CorruptFile(path, "a place for every tensor", f"{len(entries)} places for {len(rows)} tensors")
    _check_cover(entries, header_start, path)
    return record, entries, metadata


def _max_text(length: int) -> int:
    """Limit of a decompressed header: hashes do not compress, and a small file must not fill the memory."""
    return max(1 << 20, 64 * length)


def _row(leaf: Leaf, entry: Entry | None) -> list[Any]:
    tensor = [name_of(leaf.dtype), leaf.shape, leaf.hash]
    return tensor if entry is None else [*tensor, entry.codec, entry.start, entry.end, entry.holder, entry.base]


def _content(file: BinaryIO, path: PurePath) -> tuple[Any, int]:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size < _END.size + len(MAGIC) or file.read(len(MAGIC)) != MAGIC:
        raise CorruptFile(path, "the file of a model", f"{size} bytes of something else")
    file.seek(size - _END.size)
    digest, length, text_length, magic = _END.unpack(file.read(_END.size))
    start = size - _END.size - length
    if magic != MAGIC or start < len(MAGIC) or max(length, text_length) > MAX_HEADER or text_length > _max_text(length):
        raise CorruptFile(path, "the end of a model's file", "something else: it was cut off or overwritten")
    file.seek(start)
    header = file.read(length)
    if hashlib.sha256(header).digest() != digest:
        raise CorruptFile(path, f"a header with SHA-256 {digest.hex()}", hashlib.sha256(header).hexdigest())
    try:
        if zstandard.frame_content_size(header) != text_length:
            raise ValueError("another length than announced")
        text = zstandard.ZstdDecompressor().decompress(header, allow_extra_data=False)
        content = json.loads(text.decode())
        if b"\\ud" in text.lower():
            # Lone halves of surrogate pairs, which JSON can have escaped, but nobody can write again.
            json.dumps(content, ensure_ascii=False).encode()
        return content, start
    except (ValueError, RecursionError, zstandard.ZstdError) as error:
        raise CorruptFile(path, "a JSON header", f"{type(error).__name__}: {error}") from error


def _parse_row(name: str, row: object, path: PurePath) -> tuple[Leaf, Entry | None]:
    match row:
        case [str(dtype), list(shape), str(digest), *rest] if dtype in DTYPE_BY_NAME and is_shape(shape):
            leaf = Leaf(DTYPE_BY_NAME[dtype], tuple(shape), digest)
            if not rest:
                return leaf, None
            entry = _entry(leaf, rest)
            if entry is not None:
                return leaf, entry
    raise CorruptFile(path, f"dtype, shape and place of tensor {name!r}", reprlib.repr(row))


def _entry(leaf: Leaf, row: list[object]) -> Entry | None:
    match row:
        case [str(kind), int(start), int(end), (str() | None) as holder, (str() | None) as base] if kind in _CODECS:
            found, n_bytes = Entry(_CODECS[kind], start, end, holder, base), end - start
        case _:
            return None
    match found.codec, holder, base:
        case Codec.RAW, None, None:
            fits = n_bytes == leaf.n_bytes
        case (Codec.PLANES, None, None) | (Codec.XOR | Codec.SUBTRACT, str(), str()):
            fits = _fits(leaf, n_bytes)
        case Codec.ELSEWHERE, str(), None:
            fits = start == end == 0
        case _:
            fits = False
    return found if fits else None


def _fits(leaf: Leaf, stored: int) -> bool:
    table = table_bytes(leaf.dtype, leaf.n_bytes)
    return table <= stored <= leaf.n_bytes + table


def _check_names(order: list[Any], ties: dict[str, Any], tensors: dict[str, Any], path: PurePath) -> None:
    texts = all(isinstance(name, str) for name in [*order, *ties.values()])
    if texts and len(set(order)) == len(order) and set(ties) <= set(order) and set(ties.values()) <= set(tensors):
        stored = [name for name in order if name not in ties]
        if set(stored) == set(tensors):
            return
    raise CorruptFile(path, "the names of the tensors it holds", "other names")


def _check_cover(entries: Mapping[str, Entry], end_of_tensors: int, path: PurePath) -> None:
    end = len(MAGIC)
    held = [(name, entry) for name, entry in entries.items() if entry.codec != Codec.ELSEWHERE]
    for name, entry in sorted(held, key=lambda item: (item[1].start, item[1].end)):
        if entry.start != end:
            raise CorruptFile(path, f"tensor {name!r} at byte {end}", f"byte {entry.start}")
        end = entry.end
    if end != end_of_tensors:
        raise CorruptFile(path, f"{end} bytes of tensors", f"{end_of_tensors}")
