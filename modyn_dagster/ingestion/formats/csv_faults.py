"""What is wrong with a CSV file that Arrow refused: the row, the column, and whether it is a cell or the whole column."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.errors import DataError, SchemaMismatch
from modyn_dagster.ingestion.formats.csv_rows import CsvRows
from modyn_dagster.ingestion.formats.csv_table import read_rows
from modyn_dagster.ingestion.formats.tables import found_columns
from modyn_dagster.ingestion.formats.text import span_bytes


def ragged_row(rows: CsvRows) -> DataError | None:
    """An error for the first row with too many or too few fields."""
    fields = rows.fields_per_row()
    wrong = fields != len(rows.names)
    if not wrong.any():
        return None
    row = int(np.argmax(wrong))
    return DataError(rows.path, f"the row has {fields[row]} fields, the header has {len(rows.names)}", row=row + 1)


def bad_cell(rows: CsvRows, columns: Sequence[Column]) -> DataError:
    """An error for the first cell that is not of its column's dtype, or for a column that holds something else throughout."""
    row = _first(len(rows.rows), lambda count: _is_readable(rows, slice(0, count), columns))
    column = next(column for column in columns if not _is_readable(rows, slice(row, row + 1), [column]))
    texts = _read(rows, slice(0, len(rows.rows)), [Column(column.name, "string")])[column.name]
    [found] = found_columns(_read(rows, slice(0, len(rows.rows)), None).select([column.name]))
    looks_numeric = pc.any(pc.match_substring_regex(texts, r"^\s*[-+.]?[0-9]")).as_py()
    if found.dtype != "string" or not looks_numeric:
        return SchemaMismatch(rows.path, f"{column.name} {column.dtype}", f"{column.name} {found.settled().dtype}")
    return DataError(rows.path, f"{texts[row].as_py()!r} is not {column.dtype}", row=row + 1, column=column.name)


def _first(n: int, is_readable: Callable[[int], bool]) -> int:
    """The row that makes the first rows unreadable, by bisection."""
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_readable(middle) else (low, middle)
    return low


def _is_readable(rows: CsvRows, span: slice, columns: Sequence[Column]) -> bool:
    try:
        _read(rows, span, columns)
    except pa.ArrowInvalid:
        return False
    return True


def _read(rows: CsvRows, span: slice, columns: Sequence[Column] | None) -> pa.Table:
    longest = int(rows.rows.lengths[span].max())
    return read_rows(span_bytes(rows.data, rows.rows, span), rows.names, columns, rows.delimiter, longest)
