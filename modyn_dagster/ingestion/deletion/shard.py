"""Bytes of a shard: a copy with zeroed ranges, ranges of strings, and checksums of ranges."""

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from fastpath.array_types import ByteArray
from fastpath.format.blocks import BlockHasher
from fastpath.format.mapped_files import open_descriptor
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.rows.row_decoding import row_dtype
from modyn_dagster.durability.incremental_fsync import HashingFile
from modyn_dagster.errors import CorruptFile
from modyn_dagster.ingestion.formats.base import Ranges
from modyn_dagster.values.digest import bytes_digest, new_hash

_CHUNK = 4 << 20


def write_zeroed(shard: Path, checksum: str, ranges: Ranges, out: HashingFile) -> BlockHasher:
    """Copy a shard with zeros in the ranges, which do not overlap, and return the digests of the new blocks.

    Raises ``CorruptFile`` when its checksum differs.
    """
    kept = ranges.lengths > 0
    starts = np.sort(ranges.offsets[kept])
    stops = np.sort((ranges.offsets + ranges.lengths)[kept])
    digest, blocks = new_hash(), BlockHasher()
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
            blocks.update(memoryview(chunk))
            base += len(chunk)
    if digest.hexdigest() != checksum:
        raise CorruptFile(shard, f"checksum {checksum}", digest.hexdigest())
    return blocks


def ranges_of_strings(shard: Path, rows: Ranges, columns: Sequence[Column]) -> Ranges:
    """Ranges of the strings of converted rows (``encode_table``). The shard must have been verified."""
    content, fields = mapped_bytes(shard), row_dtype(columns).fields
    ranges = Ranges(np.empty(0, np.int64), np.empty(0, np.int64))
    if len(rows) == 0 or fields is None:
        return ranges
    for column in columns:
        if column.dtype == "string":
            field, at = fields[column.name][:2]
            # A view of the field at every byte of the shard; only the bytes of the rows are read.
            at_every_byte: npt.NDArray[np.void] = np.ndarray(len(content) - field.itemsize + 1, field, content, strides=(1,))
            strings = at_every_byte[rows.offsets + at]
            ranges = ranges.joined_with(Ranges(strings["offset"], strings["length"]))
    return ranges


def checksums_of(shard: Path, ranges: Ranges) -> set[str]:
    """Checksums of the ranges, equal to those of files with the same bytes. The shard must have been verified."""
    content = mapped_bytes(shard)
    return {
        bytes_digest(content[at : at + n].tobytes())
        for at, n in zip(ranges.offsets.tolist(), ranges.lengths.tolist(), strict=True)
    }


def mapped_bytes(shard: Path) -> ByteArray:
    """Bytes of a shard, mapped. Raises ``CorruptFile`` when it is missing."""
    with _opened(shard) as file:
        return np.memmap(file, dtype=np.uint8, mode="r")


def _opened(shard: Path) -> BinaryIO:
    try:
        return open(shard, "rb", opener=lambda _, __: open_descriptor(shard))
    except OSError as error:
        raise CorruptFile(shard, "the shard of a batch", error.strerror or str(error)) from error
