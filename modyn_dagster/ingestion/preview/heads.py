"""Heads of files: their first rows as a file of their own, so that large files are judged without being read."""

import io
from typing import IO, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fastpath.array_types import ByteArray
from modyn_dagster.ingestion.sources.files import FileState, LoadedFile
from modyn_dagster.ingestion.sources.source import Source
from modyn_dagster.spec.formats import CsvFormat, FixedRowsFormat, JsonlFormat, ParquetFormat

#: Rows of a Parquet file, and records of fixed rows.
_ROWS: Final = 1_000
#: Bytes of a file of text; its rows are those that end in them.
_BYTES: Final = 1 << 20
_QUOTE: Final = ord('"')


def head_of(
    source: Source, format: CsvFormat | JsonlFormat | ParquetFormat | FixedRowsFormat, path: str, n_bytes: int = _BYTES
) -> LoadedFile:
    """First rows of a file, with its header; all of it if it is small, or so damaged that no row can be cut off.

    ``n_bytes`` are read of a file of text. Raises ``DataError`` for a file that cannot be read.
    """
    with source.opened(path) as (file, state):
        match format:
            case ParquetFormat():
                data = _parquet_head(file)
            case FixedRowsFormat():
                data = _records_head(file, format, state)
            case _:
                data = _text_head(file, state, n_bytes, quotes=isinstance(format, CsvFormat))
    return source.load(path) if data is None else LoadedFile(path, data, state)


def _parquet_head(file: IO[bytes]) -> ByteArray | None:
    try:
        rows = next(pq.ParquetFile(file).iter_batches(_ROWS), None)
        if rows is None:
            return None
        head = io.BytesIO()
        pq.write_table(pa.Table.from_batches([rows]), head)
    except (pa.ArrowException, OSError, ValueError, LookupError, OverflowError, MemoryError):
        # Reading the whole file says what is wrong with it.
        return None
    return np.frombuffer(head.getvalue(), dtype=np.uint8)


def _records_head(file: IO[bytes], format: FixedRowsFormat, state: FileState) -> ByteArray | None:
    width = np.dtype([(name, code) for name, code in format.dtype]).itemsize
    if (state.size - format.header_bytes) % width:
        return None
    return np.frombuffer(file.read(format.header_bytes + _ROWS * width), dtype=np.uint8)


def _text_head(file: IO[bytes], state: FileState, n_bytes: int, *, quotes: bool) -> ByteArray | None:
    data = np.frombuffer(file.read(n_bytes), dtype=np.uint8)
    if len(data) == state.size:
        return data
    # Of "\r\n" the second byte ends a row; of a "\r" at the end nobody knows.
    returns = (data == ord("\r")) & (np.append(data[1:], ord("\n")) != ord("\n"))
    breaks = np.flatnonzero((data == ord("\n")) | returns)
    if quotes:
        # A line break between quotes ends no row.
        breaks = breaks[np.searchsorted(np.flatnonzero(data == _QUOTE), breaks) % 2 == 0]
    # The header and a row, at the least.
    return data[: breaks[-1] + 1] if len(breaks) > 1 else None
