"""Rows of a CSV file by quote parity, without a Python object per row (RFC 4180; CR, LF and CR LF end a row)."""

import csv
from dataclasses import dataclass
from typing import Final

import numpy as np

from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.formats.base import ByteArray, Int64Array, Ranges
from modyn_dagster.ingestion.formats.text import NEWLINE, RETURN, after_bom, first_bad_byte, line_breaks, lines_between

_QUOTE: Final = ord('"')


@dataclass(frozen=True, slots=True)
class CsvRows:
    """A CSV file cut into rows.

    Attributes:
        path: for errors.
        data: the whole file.
        names: column names from its first row.
        rows: the data rows, without the breaks between them; empty lines are no rows.
        quotes: positions of all quote characters.
    """

    path: str
    data: ByteArray
    delimiter: str
    names: tuple[str, ...]
    rows: Ranges
    quotes: Int64Array

    def fields_per_row(self) -> Int64Array:
        """Number of fields of every row."""
        delimiters = _unquoted(np.flatnonzero(self.data == ord(self.delimiter)), self.quotes)
        ends = self.rows.offsets + self.rows.lengths
        inside = np.searchsorted(delimiters, ends) - np.searchsorted(delimiters, self.rows.offsets)
        return np.asarray(inside + 1, dtype=np.int64)


def find_rows(path: str, data: ByteArray, delimiter: str) -> CsvRows:
    """Cut a CSV file into rows. Raises ``DataError`` for bad quotes, bytes that are not UTF-8, and files without rows."""
    start = after_bom(data)
    quotes = np.flatnonzero(data == _QUOTE)
    lines = lines_between(start, _unquoted(line_breaks(data), quotes), len(data))
    if len(lines) == 0:
        raise DataError(path, "the file is empty, expected a header line and rows")
    names = _header(path, data, lines, delimiter)
    rows = CsvRows(path, data, delimiter, names, Ranges(lines.offsets[1:], lines.lengths[1:]), quotes)
    bad_byte = first_bad_byte(data)
    if bad_byte is not None:
        raise _at(rows, bad_byte, f"byte 0x{data[bad_byte]:02x} is not UTF-8")
    _check_quotes(rows, start)
    if len(rows.rows) == 0:
        raise DataError(path, "the file has a header but no rows")
    return rows


def _unquoted(positions: Int64Array, quotes: Int64Array) -> Int64Array:
    """Those positions that an even number of quotes precedes."""
    if len(quotes) == 0:
        return positions
    unquoted: Int64Array = positions[np.searchsorted(quotes, positions) % 2 == 0]
    return unquoted


def _header(path: str, data: ByteArray, lines: Ranges, delimiter: str) -> tuple[str, ...]:
    text = data[lines.offsets[0] : lines.offsets[0] + lines.lengths[0]].tobytes().decode("utf-8", errors="replace")
    names = tuple(next(csv.reader([text], delimiter=delimiter)))
    for name in names:
        if not name.strip():
            raise DataError(path, f"the header has a column without a name: {text.strip()[:200]!r}")
        if names.count(name) > 1:
            raise DataError(path, "the header has this column twice", column=name)
    return names


def _check_quotes(rows: CsvRows, start: int) -> None:
    """Quotes alternate between opening and closing ones; an escaped quote is a closing one and an opening one beside it."""
    quotes, data = rows.quotes, rows.data
    if len(quotes) == 0:
        return
    beside_next = np.append(np.diff(quotes) == 1, False)
    beside_previous = np.concatenate(([False], beside_next[:-1]))
    may_stand_beside = (ord(rows.delimiter), NEWLINE, RETURN)
    opens = np.arange(len(quotes)) % 2 == 0
    before_ok = (quotes == start) | np.isin(data[quotes - 1], may_stand_beside) | beside_previous
    after_ok = (quotes == len(data) - 1) | np.isin(data[np.minimum(quotes + 1, len(data) - 1)], may_stand_beside) | beside_next
    bad = np.where(opens, ~before_ok, ~after_ok)
    if bad.any():
        problem = "bad quote: quotes stand around a whole field, a quote inside is written twice"
        raise _at(rows, int(quotes[np.argmax(bad)]), problem)
    if len(quotes) % 2:
        raise _at(rows, int(quotes[-1]), "bad quote: it is never closed")


def _at(rows: CsvRows, position: int, problem: str) -> DataError:
    """An error at a byte; everything before it is sound, so its row and column are known."""
    row = int(np.searchsorted(rows.rows.offsets, position, side="right"))
    if row == 0:
        return DataError(rows.path, f"in the header: {problem}")
    row_start = int(rows.rows.offsets[row - 1])
    before = np.flatnonzero(rows.data[row_start:position] == ord(rows.delimiter)) + row_start
    column = len(_unquoted(before, rows.quotes))
    return DataError(rows.path, problem, row=row, column=rows.names[column] if column < len(rows.names) else None)
