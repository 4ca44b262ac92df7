"""Rows of a CSV file by quote parity, without a Python object per row (RFC 4180; CR, LF and CR LF end a row)."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from fastpath.array_types import ByteArray, Int64Array
from fastpath.arrays.lines import Lines, find_lines
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.formats.base import BOM, Ranges, after_bom, first_bad_byte

_QUOTE: Final = ord('"')
_BAD_QUOTE: Final = "bad quote: quotes stand around a whole field, a quote inside is written twice"


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
    first_row = int(lines.offsets[1]) if len(lines.offsets) > 1 else len(data)
    bad_byte = first_bad_byte(data)
    if bad_byte is not None and bad_byte < first_row:
        raise DataError(path, f"in the header: byte 0x{data[bad_byte]:02x} is not UTF-8")
    if lines.bad_quote is not None and lines.bad_quote < first_row:
        raise DataError(path, f"in the header: {_BAD_QUOTE}")
    names = _header(path, data, lines, delimiter)
    rows = CsvRows(path, data, delimiter, names, Ranges(lines.offsets[1:], lines.lengths[1:]))
    if bad_byte is not None:
        raise _at(rows, bad_byte, f"byte 0x{data[bad_byte]:02x} is not UTF-8")
    if lines.bad_quote is not None:
        raise _at(rows, lines.bad_quote, _BAD_QUOTE)
    if lines.unclosed_quote is not None:
        raise _at(rows, lines.unclosed_quote, "bad quote: it is never closed")
    if len(rows.rows) == 0:
        raise DataError(path, "the file has a header but no rows")
    _require_no_bom(rows)
    return rows


def _require_no_bom(rows: CsvRows) -> None:
    """Raise ``DataError`` for a byte order mark before a row: parsers drop it from the first row they are given, and no other."""
    for row in np.flatnonzero(rows.data[rows.rows.offsets] == BOM[0]):
        if after_bom(rows.data[rows.rows.offsets[row] :]):
            raise DataError(
                rows.path, "the row begins with a byte order mark, as where files were joined; remove it", row=int(row) + 1
            )


def _unquoted(positions: Int64Array, quotes: Int64Array) -> Int64Array:
    """Positions outside quotes: those after an even number of quotes."""
    if len(quotes) == 0:
        return positions
    unquoted: Int64Array = positions[np.searchsorted(quotes, positions) % 2 == 0]
    return unquoted


def _header(path: str, data: ByteArray, lines: Lines, delimiter: str) -> tuple[str, ...]:
    """Names of the columns. A name is text between delimiters, or between quotes around the whole field."""
    content = data[lines.offsets[0] : lines.offsets[0] + lines.lengths[0]]
    cuts = _unquoted(np.flatnonzero(content == ord(delimiter)), np.flatnonzero(content == _QUOTE))
    bounds = [-1, *cuts.tolist(), len(content)]
    names = tuple(_unescaped(content[before + 1 : end].tobytes()) for before, end in pairwise(bounds))
    for name in names:
        if not name.strip():
            text = content[:200].tobytes().decode("utf-8", errors="replace")
            raise DataError(path, f"the header has a column without a name: {text.strip()!r}")
    [(name, times)] = Counter(names).most_common(1)
    if times > 1:
        raise DataError(path, "the header has this column twice", column=name)
    return names


def _unescaped(field: bytes) -> str:
    text = field.decode("utf-8")
    return text[1:-1].replace('""', '"') if text.startswith('"') else text


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
