"""What is wrong with a CSV file that Arrow refused: the row, the column, and whether it is a cell or the whole column."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.errors import DataError, SchemaMismatch
from modyn_dagster.ingestion.formats.base import ByteArray
from modyn_dagster.ingestion.formats.csv_rows import CsvRows
from modyn_dagster.ingestion.formats.csv_table import infer_rows, read_rows
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
    row = _first_unreadable(rows, columns)
    column = next(column for column in columns if not _is_readable(rows, slice(row, row + 1), [column]))
    whole = slice(0, len(rows.rows))
    texts = read_rows(*_place(rows, whole), [Column(column.name, "string")], rows.delimiter, _longest(rows, whole))[column.name]
    found_table = infer_rows(*_place(rows, whole), rows.delimiter, _longest(rows, whole))
    [found] = found_columns(found_table.select([column.name]))
    looks_numeric = pc.any(pc.match_substring_regex(texts, r"^\s*[-+.]?[0-9]")).as_py()
    if found.dtype != "string" or not looks_numeric:
        return SchemaMismatch(rows.path, f"{column.name} {column.dtype}", f"{column.name} {found.settled().dtype}")
    return DataError(rows.path, f"{texts[row].as_py()!r} is not {column.dtype}", row=row + 1, column=column.name)


def _first_unreadable(rows: CsvRows, columns: Sequence[Column]) -> int:
    """By bisection: rows before ``low`` can be read, those from ``low`` to ``high`` cannot."""
    low, high = 0, len(rows.rows)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _is_readable(rows, slice(low, middle), columns) else (low, middle)
    return low


def _is_readable(rows: CsvRows, span: slice, columns: Sequence[Column]) -> bool:
    try:
        read_rows(*_place(rows, span), columns, rows.delimiter, _longest(rows, span))
    except pa.ArrowInvalid:
        return False
    return True


def _place(rows: CsvRows, span: slice) -> tuple[ByteArray, tuple[str, ...]]:
    return span_bytes(rows.data, rows.rows, span), rows.names


def _longest(rows: CsvRows, span: slice) -> int:
    return int(rows.rows.lengths[span].max())
