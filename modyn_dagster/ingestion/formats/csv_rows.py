"""Rows of a CSV file by quote parity, without a Python object per row (RFC 4180; CR, LF and CR LF end a row)."""

import csv
from dataclasses import dataclass
from typing import Final

import numpy as np

from fastpath.array_types import ByteArray, Int64Array
from fastpath.arrays.lines import Lines, find_lines
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.formats.base import Ranges, after_bom, first_bad_byte

_QUOTE: Final = ord('"')


@dataclass(frozen=True, slots=True)
class CsvRows:
    """A CSV file cut into rows.

    Attributes:
        path: for errors.
        data: bytes of the file.
        delimiter: one ASCII character.
        names: of the columns, from the first row.
        rows: extents of the data rows, without line breaks; empty lines are no rows.
    """

    path: str
    data: ByteArray
    delimiter: str
    names: tuple[str, ...]
    rows: Ranges

    def fields_per_row(self) -> Int64Array:
        """Number of fields of every row."""
        delimiters = _unquoted(np.flatnonzero(self.data == ord(self.delimiter)), np.flatnonzero(self.data == _QUOTE))
        ends = self.rows.offsets + self.rows.lengths
        inside = np.searchsorted(delimiters, ends) - np.searchsorted(delimiters, self.rows.offsets)
        return np.asarray(inside + 1, dtype=np.int64)


def find_rows(path: str, data: ByteArray, delimiter: str) -> CsvRows:
    """Cut a CSV file into rows. Raises ``DataError`` for bad quotes, bytes that are not UTF-8, and files without rows."""
    lines = find_lines(data, after_bom(data), delimiter)
    if len(lines.offsets) == 0:
        raise DataError(path, "the file is empty, expected a header line and rows")
    names = _header(path, data, lines, delimiter)
    rows = CsvRows(path, data, delimiter, names, Ranges(lines.offsets[1:], lines.lengths[1:]))
    bad_byte = first_bad_byte(data)
    if bad_byte is not None:
        raise _at(rows, bad_byte, f"byte 0x{data[bad_byte]:02x} is not UTF-8")
    if lines.bad_quote is not None:
        raise _at(rows, lines.bad_quote, "bad quote: quotes stand around a whole field, a quote inside is written twice")
    if lines.unclosed_quote is not None:
        raise _at(rows, lines.unclosed_quote, "bad quote: it is never closed")
    if len(rows.rows) == 0:
        raise DataError(path, "the file has a header but no rows")
    return rows


def _unquoted(positions: Int64Array, quotes: Int64Array) -> Int64Array:
    """Positions outside quotes: those after an even number of quotes."""
    if len(quotes) == 0:
        return positions
    unquoted: Int64Array = positions[np.searchsorted(quotes, positions) % 2 == 0]
    return unquoted


def _header(path: str, data: ByteArray, lines: Lines, delimiter: str) -> tuple[str, ...]:
    text = data[lines.offsets[0] : lines.offsets[0] + lines.lengths[0]].tobytes().decode("utf-8", errors="replace")
    names = tuple(next(csv.reader([text], delimiter=delimiter)))
    for name in names:
        if not name.strip():
            raise DataError(path, f"the header has a column without a name: {text.strip()[:200]!r}")
        if names.count(name) > 1:
            raise DataError(path, "the header has this column twice", column=name)
    return names


def _at(rows: CsvRows, position: int, problem: str) -> DataError:
    """The error at a byte. Everything before it is sound, so its row and column are known."""
    row = int(np.searchsorted(rows.rows.offsets, position, side="right"))
    if row == 0:
        return DataError(rows.path, f"in the header: {problem}")
    row_start = int(rows.rows.offsets[row - 1])
    before = np.flatnonzero(rows.data[row_start:position] == ord(rows.delimiter)) + row_start
    quotes = np.flatnonzero(rows.data[row_start:position] == _QUOTE) + row_start
    column = len(_unquoted(before, quotes))
    return DataError(rows.path, problem, row=row, column=rows.names[column] if column < len(rows.names) else None)
