"""CSV files: rows are found by quote parity, checked and inferred by Arrow; errors name row and column."""

from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.arrow_rows import ByteArray, infer_rows, read_rows
from modyn_dagster.errors import DataError, SchemaMismatch
from modyn_dagster.ingestion.formats.base import Ranges, span_bytes, spans
from modyn_dagster.ingestion.formats.columns import Found, found_columns, merge_columns
from modyn_dagster.ingestion.formats.csv_rows import CsvRows, find_rows
from modyn_dagster.ingestion.formats.parsed import Inferred, Typed, agree, columns_to_reparse, joined_columns, require_present
from modyn_dagster.ingestion.sources.files import LoadedFile
from modyn_dagster.parallel_map import map_in_threads
from modyn_dagster.spec.formats import CsvFormat


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


T = TypeVar("T")

#: Bytes that one thread parses at a time.
_CHUNK: Final = 4 << 20
#: Bytes whose columns are inferred together where smaller runs disagree.
_LARGE_CHUNK: Final = 64 << 20


class CsvFile:
    """One CSV file, cut into rows."""

    def __init__(self, rows: CsvRows) -> None:
        self._rows = rows
        self._inferred: list[Inferred] = []

    def __len__(self) -> int:
        return len(self._rows.rows)

    @property
    def ranges(self) -> Ranges:
        """The rows without their breaks."""
        return self._rows.rows

    def find_columns(self, keep: Collection[str] = ()) -> list[Found]:
        """Dtypes by Arrow's inference, the widest of all runs; dates and times stay strings."""
        runs = self._infer(keep, _CHUNK)
        if not agree([run.found for run in runs]):
            runs = self._infer(keep, _LARGE_CHUNK)
        self._inferred = runs if keep else []
        return merge_columns([run.found for run in runs])

    def convert(self, columns: Sequence[Column], wanted: Collection[str]) -> dict[str, pa.Array]:
        """Check everything, keep what is wanted. Columns must stand in the dataset's order: rows are read without the header."""
        names = [column.name for column in columns]
        if list(self._rows.names) != names:
            raise SchemaMismatch(self._rows.path, ", ".join(names), ", ".join(self._rows.names))
        runs, self._inferred = self._inferred, []
        again = columns_to_reparse(columns, wanted, runs) if runs else None
        if again is None:
            return self._typed(columns, wanted)
        others = set(wanted) - {column.name for column in again}
        kept = joined_columns(columns, others, [run.kept for run in runs])
        return kept | (self._typed(again, wanted) if again else {})

    def _infer(self, keep: Collection[str], max_bytes: int) -> list[Inferred]:
        def infer(data: ByteArray, longest: int) -> Inferred:
            return Inferred.of(infer_rows(data, self._rows.names, self._rows.delimiter, longest), keep)

        return self._each(infer, max_bytes)

    def _typed(self, columns: Sequence[Column], wanted: Collection[str]) -> dict[str, pa.Array]:
        # Any cell is text; without a column to parse Arrow would take all.
        parsed = [column for column in columns if column.dtype != "string" or column.name in wanted] or list(columns[:1])

        def read(data: ByteArray, longest: int) -> Typed:
            return Typed.of(read_rows(data, self._rows.names, parsed, self._rows.delimiter, longest), parsed, wanted)

        parts = self._each(read, _CHUNK, columns)
        require_present(self._rows.path, columns, parts)
        return joined_columns(columns, wanted, [part.kept for part in parts])

    def _each(self, parse: Callable[[ByteArray, int], T], max_bytes: int, columns: Sequence[Column] = ()) -> list[T]:
        """What a function of (bytes, longest row) makes of all runs of rows, several at a time."""
        rows = self._rows
        longest = int(rows.rows.lengths.max())
        try:
            return list(
                map_in_threads(lambda span: parse(span_bytes(rows.data, rows.rows, span), longest), spans(rows.rows, max_bytes))
            )
        except pa.ArrowInvalid as error:
            # Inference takes any cell, so without columns only a ragged row can be at fault.
            raise ragged_row(rows) or (bad_cell(rows, columns) if columns else DataError(rows.path, str(error))) from error


class Csv:
    """The format ``csv``."""

    def __init__(self, spec: CsvFormat) -> None:
        self._delimiter = spec.delimiter

    def open(self, file: LoadedFile) -> CsvFile:
        """Find the rows of a file."""
        return CsvFile(find_rows(file.path, file.data, self._delimiter))
