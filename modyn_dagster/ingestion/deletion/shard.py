"""The bytes of a shard with some ranges of them zeroed."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.arrow_rows import ByteArray, Int64Array
from modyn_dagster.data.row_decoding import row_dtype
from modyn_dagster.errors import CorruptFile
from modyn_dagster.incremental_fsync import HashingFile

_CHUNK = 4 << 20


class Ranges(NamedTuple):
    """Ranges of bytes, ``int64[n]`` each; they do not overlap."""

    offsets: Int64Array
    lengths: Int64Array

    def and_those(self, others: Self) -> Self:
        """These ranges and others."""
        return type(self)(*(np.concatenate(pair) for pair in zip(self, others, strict=True)))


def write_zeroed(shard: Path, checksum: str, ranges: Ranges, out: HashingFile) -> None:
    """Copy a shard with zeros in the ranges; ``CorruptFile`` when what was copied has another checksum."""
    kept = ranges.lengths > 0
    starts = np.sort(ranges.offsets[kept])
    stops = np.sort((ranges.offsets + ranges.lengths)[kept])
    digest = hashlib.blake2b(digest_size=16)
    base = 0
    with _opened(shard) as file:
        while content := file.read(_CHUNK):
            digest.update(content)
            chunk = bytearray(content)
            first = np.searchsorted(stops, base, side="right")
            last = np.searchsorted(starts, base + len(chunk), side="left")
            for start, stop in zip(starts[first:last].tolist(), stops[first:last].tolist(), strict=True):
                begin, end = max(start - base, 0), min(stop - base, len(chunk))
                chunk[begin:end] = bytes(end - begin)
            out.write(memoryview(chunk))
            base += len(chunk)
    if digest.hexdigest() != checksum:
        raise CorruptFile(shard, f"checksum {checksum}", digest.hexdigest())


def ranges_of_strings(shard: Path, rows: Ranges, columns: Sequence[Column]) -> Ranges:
    """Where the strings of rows lie that were converted to fixed width (``encode_table``); the shard is known to be intact."""
    content, fields = mapped_bytes(shard), row_dtype(columns).fields
    found = Ranges(np.empty(0, np.int64), np.empty(0, np.int64))
    if len(rows.offsets) == 0 or fields is None:
        return found
    for column in columns:
        if column.dtype == "string":
            field, at = fields[column.name][:2]
            # A view of what the field would be at each byte of the shard; only those of the rows are read.
            everywhere: npt.NDArray[np.void] = np.ndarray(len(content) - field.itemsize + 1, field, content, strides=(1,))
            strings = everywhere[rows.offsets + at]
            found = found.and_those(Ranges(strings["offset"], strings["length"]))
    return found


def checksums_of(shard: Path, ranges: Ranges) -> set[str]:
    """Hex BLAKE2b digests (16 bytes) of the ranges, as files of the same bytes have them; the shard is known to be intact."""
    content = mapped_bytes(shard)
    return {
        hashlib.blake2b(content[at : at + n].tobytes(), digest_size=16).hexdigest()
        for at, n in zip(ranges.offsets.tolist(), ranges.lengths.tolist(), strict=True)
    }


def mapped_bytes(shard: Path) -> ByteArray:
    """The bytes of a shard. Raises ``CorruptFile`` when it is gone."""
    with _opened(shard) as file:
        return np.memmap(file, dtype=np.uint8, mode="r")


def _opened(shard: Path) -> BinaryIO:
    try:
        return shard.open("rb")
    except OSError as error:
        raise CorruptFile(shard, "the shard of a batch", error.strerror or str(error)) from error
