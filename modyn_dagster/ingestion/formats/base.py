"""Protocols of row formats, and rows of text as byte ranges: byte order mark, UTF-8 check, runs of bounded size."""

from codecs import getincrementaldecoder
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from fastpath.array_types import ByteArray, Int64Array
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.ingestion.formats.columns import ObservedColumn
from modyn_dagster.ingestion.sources.files import LoadedFile


@dataclass(frozen=True, slots=True)
class Ranges:
    """Byte offsets and lengths of n samples in a buffer, ``int64[n]`` each."""

    offsets: Int64Array
    lengths: Int64Array

    def __len__(self) -> int:
        return len(self.offsets)

    def joined_with(self, others: "Ranges") -> "Ranges":
        """Concatenate with other ranges."""
        return Ranges(np.concatenate([self.offsets, others.offsets]), np.concatenate([self.lengths, others.lengths]))


class OpenRows(Protocol):
    """Rows of one file; ``len`` is their number. Rows count from 0 here and from 1 in errors."""

    def __len__(self) -> int: ...

    @property
    def ranges(self) -> Ranges | None:
        """Extents of the rows in the file; None for rows that are converted (``table``) and copied to a shard."""

    def find_columns(self, keep: Collection[str] = ()) -> list[ObservedColumn]:
        """Observe columns and dtypes. ``keep`` names columns that ``convert`` will need, which may save it parsing them again."""

    def present(self, columns: Sequence[Column], optional: Collection[str]) -> list[Column]:
        """The dataset's columns without the optional ones that the rows lack, in the order of the rows."""

    def convert(self, columns: Sequence[Column], names: Collection[str]) -> dict[str, pa.Array]:
        """Check every cell against the columns of the rows and return some columns, each of length n.

        Missing numbers of a float64 column are NaN. Raises ``SchemaMismatch``, or ``DataError`` naming row and column.
        """

    def table(self, columns: Sequence[Column]) -> pa.Table | None:
        """Converted rows for a shard; None for rows that are read from the bytes of the file."""


class RowFormat(Protocol):
    """Format whose samples are rows with columns."""

    def open(self, file: LoadedFile) -> OpenRows:
        """Find the rows of a file. Raises ``DataError`` if there are none, or their bounds cannot be found."""


T = TypeVar("T")

#: UTF-8 byte order mark.
BOM: Final = b"\xef\xbb\xbf"
STEP: Final = 1 << 20


def after_bom(data: ByteArray) -> int:
    """Position of the first byte of the text, after a byte order mark if there is one."""
    return len(BOM) if data[: len(BOM)].tobytes() == BOM else 0


def first_bad_byte(data: ByteArray) -> int | None:
    """Position of the first byte that is not UTF-8; None if there is none."""
    bounds = np.array([0, len(data)], dtype=np.int64)
    try:
        pa.LargeStringArray.from_buffers(1, pa.py_buffer(bounds), pa.py_buffer(data)).validate(full=True)
    except pa.ArrowInvalid:
        return _position_of_bad_byte(data)
    return None


def _position_of_bad_byte(data: ByteArray) -> int:
    decoder = getincrementaldecoder("utf-8")()
    for start in range(0, len(data), STEP):
        pending, _ = decoder.getstate()
        try:
            decoder.decode(data[start : start + STEP].tobytes(), final=start + STEP >= len(data))
        except UnicodeDecodeError as error:
            return start - len(pending) + error.start
    raise ValueError("the text is UTF-8")


def spans(lines: Ranges, max_bytes: int) -> list[slice]:
    """Consecutive runs of lines, each at most ``max_bytes`` long or a single line."""
    runs, first = [], 0
    ends = lines.offsets + lines.lengths
    while first < len(lines):
        last = int(np.searchsorted(ends, lines.offsets[first] + max_bytes, side="right"))
        runs.append(slice(first, max(last, first + 1)))
        first = runs[-1].stop
    return runs


def span_bytes(data: ByteArray, lines: Ranges, span: slice) -> ByteArray:
    """Bytes from the first to the last line of a span, with everything between."""
    last = span.stop - 1
    return data[lines.offsets[span.start] : lines.offsets[last] + lines.lengths[last]]
