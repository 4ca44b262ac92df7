"""The protocol of row formats, and rows of text as byte ranges: byte order mark, UTF-8 check, runs of bounded size."""

from codecs import getincrementaldecoder
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.arrow_rows import ByteArray, Int64Array
from modyn_dagster.ingestion.formats.columns import Found
from modyn_dagster.ingestion.sources.files import LoadedFile


@dataclass(frozen=True, slots=True)
class Ranges:
    """Where n samples lie in a buffer: byte offsets and lengths, ``int64[n]`` each."""

    offsets: Int64Array
    lengths: Int64Array

    def __len__(self) -> int:
        return len(self.offsets)


class OpenRows(Protocol):
    """One file whose rows were found; ``len`` is their number. Rows count from 0 here and from 1 in errors."""

    def __len__(self) -> int: ...

    @property
    def ranges(self) -> Ranges | None:
        """Where the rows' bytes lie in the file; None when rows are converted instead (``table``), and go to a shard."""

    def find_columns(self, keep: Collection[str] = ()) -> list[Found]:
        """Columns and dtypes as this file shows them; the cells of those to keep may save ``convert`` a second look."""

    def convert(self, columns: Sequence[Column], wanted: Collection[str]) -> dict[str, pa.Array]:
        """Check every cell against the dataset's columns; the wanted ones, each of length n.

        Numbers missing from a float64 column are NaN. Raises ``SchemaMismatch``, or ``DataError`` naming row and column.
        """


class RowFormat(Protocol):
    """A format whose samples are rows with columns."""

    def open(self, file: LoadedFile) -> OpenRows:
        """Find the rows of a file. Raises ``DataError`` where there are none, or they cannot be told apart."""


T = TypeVar("T")

_BOM: Final = b"\xef\xbb\xbf"
_STEP: Final = 1 << 20


def after_bom(data: ByteArray) -> int:
    """Where the text begins: behind a byte order mark, if there is one."""
    return len(_BOM) if data[: len(_BOM)].tobytes() == _BOM else 0


def first_bad_byte(data: ByteArray) -> int | None:
    """Position of the first byte that is not UTF-8; None when all are."""
    bounds = np.array([0, len(data)], dtype=np.int64)
    try:
        pa.LargeStringArray.from_buffers(1, pa.py_buffer(bounds), pa.py_buffer(data)).validate(full=True)
    except pa.ArrowInvalid:
        return _position_of_bad_byte(data)
    return None


def _position_of_bad_byte(data: ByteArray) -> int:
    decoder = getincrementaldecoder("utf-8")()
    for start in range(0, len(data), _STEP):
        waiting, _ = decoder.getstate()
        try:
            decoder.decode(data[start : start + _STEP].tobytes(), final=start + _STEP >= len(data))
        except UnicodeDecodeError as error:
            return start - len(waiting) + error.start
    raise ValueError("the text is UTF-8")


def spans(lines: Ranges, max_bytes: int) -> list[slice]:
    """Consecutive runs of lines, each at most ``max_bytes`` long or a single line."""
    found, first = [], 0
    ends = lines.offsets + lines.lengths
    while first < len(lines):
        last = int(np.searchsorted(ends, lines.offsets[first] + max_bytes, side="right"))
        found.append(slice(first, max(last, first + 1)))
        first = found[-1].stop
    return found


def span_bytes(data: ByteArray, lines: Ranges, span: slice) -> ByteArray:
    """The bytes from the first to the last line of a span, as they stand in the file."""
    last = span.stop - 1
    return data[lines.offsets[span.start] : lines.offsets[last] + lines.lengths[last]]
