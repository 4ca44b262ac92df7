"""Header of a safetensors file: written, and read without trusting a byte of it.

``8 bytes header length, little-endian | JSON header | tensors``. The header maps names to dtype, shape and place; the
places must cover the rest of the file without gap or overlap.
"""

import json
import math
import os
import reprlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, BinaryIO, Final

from modyn_dagster.errors import CorruptFile, StorageError
from modyn_dagster.model_store.format.tensors import DTYPES, is_shape
from modyn_dagster.values.json_values import compact_json

#: Larger headers are refused before they are read: about 100,000 tensors.
MAX_HEADER: Final = 32 << 20
METADATA: Final = "__metadata__"


@dataclass(frozen=True, slots=True)
class Place:
    """Place of one stored tensor: a code of ``DTYPES``, the shape, and the bytes counted from the end of the header."""

    code: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """Parsed header, and the bytes it was parsed from."""

    metadata: Mapping[str, str]
    places: Mapping[str, Place]
    encoded: bytes

    @property
    def data_start(self) -> int:
        """Offset of the first tensor in the file."""
        return len(self.encoded)


def encode_header(metadata: Mapping[str, str], places: Mapping[str, Place]) -> bytes:
    """Length and JSON, padded with spaces so that the tensors begin at a multiple of eight."""
    content: dict[str, Any] = {METADATA: dict(metadata)}
    for name, place in places.items():
        content[name] = {"dtype": place.code, "shape": list(place.shape), "data_offsets": [place.start, place.end]}
    text = compact_json(content).encode()
    text += b" " * (-len(text) % 8)
    require_readable(len(text))
    return struct.pack("<Q", len(text)) + text


def require_readable(length: int, limit: int = MAX_HEADER) -> None:
    """``StorageError`` for a header too long to be read again."""
    if length > min(limit, MAX_HEADER):
        raise StorageError(f"names and shapes of the tensors take {length} bytes; at most {min(limit, MAX_HEADER)} can be stored")


def read_header(file: BinaryIO, path: PurePath) -> Header:
    """Parse and check the header of an open file; ``CorruptFile`` describes the fault."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > min(size - 8, MAX_HEADER):
        raise CorruptFile(path, f"a header of at most {min(max(size - 8, 0), MAX_HEADER)} bytes", f"{length} bytes announced")
    text = file.read(length)
    content = _parse(text, path)
    metadata = content.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CorruptFile(path, "metadata of texts", "something else")
    places = {name: _place(name, entry, path) for name, entry in content.items()}
    _check_cover(places, size - 8 - length, path)
    return Header(metadata, places, start + text)


def _parse(text: bytes, path: PurePath) -> dict[str, Any]:
    try:
        content = json.loads(text.decode("utf-8"), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise CorruptFile(path, "a JSON header", f"{type(error).__name__}: {error}") from error
    if not isinstance(content, dict):
        raise CorruptFile(path, "a JSON object as header", f"a {type(content).__name__}")
    return content


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a name occurs twice")
    return content


def _place(name: str, entry: object, path: PurePath) -> Place:
    match entry:
        case {"dtype": str(code), "shape": list(shape), "data_offsets": [int(start), int(end)]}:
            dtype = DTYPES.get(code)
            if dtype is not None and is_shape(shape) and end - start == math.prod(shape) * dtype.itemsize:
                return Place(code, tuple(shape), start, end)
    raise CorruptFile(path, f"dtype, shape and place of tensor {name!r}", reprlib.repr(entry))


def _check_cover(places: Mapping[str, Place], n_bytes: int, path: PurePath) -> None:
    end = 0
    for name, place in sorted(places.items(), key=lambda item: (item[1].start, item[1].end)):
        if place.start != end:
            raise CorruptFile(path, f"tensor {name!r} at byte {end} of the data", f"byte {place.start}")
        end = place.end
        if end > n_bytes:
            raise CorruptFile(path, f"tensor {name!r} up to byte {end} of the data", f"{n_bytes} bytes of data")
    if end != n_bytes:
        raise CorruptFile(path, f"{end} bytes of tensors", f"{n_bytes} bytes of data")
