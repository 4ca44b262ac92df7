"""CSV files: rows are found by quote parity and parsed by Arrow; errors name row and column."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastpath.array_types import ByteArray
from fastpath.arrays.lines import contains
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.rows.arrow_rows import infer_rows, read_rows
from modyn_dagster.errors import DataError, SchemaMismatch
from modyn_dagster.ingestion.formats.base import Ranges, span_bytes, spans
from modyn_dagster.ingestion.formats.columns import ObservedColumn, merge_columns, observed_columns, require_names
from modyn_dagster.ingestion.formats.csv_rows import CsvRows, find_rows
from modyn_dagster.ingestion.formats.parsed import (
    InferredRows,
    TypedRows,
    columns_to_reparse,
    joined_columns,
    require_present,
    runs_agree,
)
from modyn_dagster.ingestion.sources.files import LoadedFile
from modyn_dagster.parallel_map import map_in_threads
from modyn_dagster.spec.formats import CsvFormat


def ragged_row(rows: CsvRows) -> DataError | None:
    """The error for the first row with too many or too few fields; None if there is none."""
    fields = rows.fields_per_row()
    wrong = fields != len(rows.names)
    if not wrong.any():
        return None
    row = int(np.argmax(wrong))
    return DataError(rows.path, f"the row has {fields[row]} fields, the header has {len(rows.names)}", row=row + 1)


def bad_cell(rows: CsvRows, columns: Sequence[Column]) -> DataError:
    """The error for the first cell that is not of its column's dtype, or for a column that is entirely of another dtype."""
    row = _first_unreadable(rows, columns)
    column = columns[_first_where(len(columns), lambda end: not _is_readable(rows, slice(row, row + 1), columns[:end]))]
    whole = slice(0, len(rows.rows))
    texts = read_rows(*_bytes_and_names(rows, whole), [Column(column.name, "string")], rows.delimiter, _longest(rows, whole))[
        column.name
    ]
    inferred = infer_rows(*_bytes_and_names(rows, whole), rows.delimiter, _longest(rows, whole))
    [observed] = observed_columns(inferred.select([column.name]))
    looks_numeric = pc.any(pc.match_substring_regex(texts, r"^\s*[-+.]?[0-9]")).as_py()
    if observed.resolved().dtype != column.dtype and (observed.dtype != "string" or not looks_numeric):
        return SchemaMismatch(rows.path, f"{column.name} {column.dtype}", f"{column.name} {observed.resolved().dtype}")
    return DataError(rows.path, f"{texts[row].as_py()!r} is not {column.dtype}", row=row + 1, column=column.name)


def _first_unreadable(rows: CsvRows, columns: Sequence[Column]) -> int:
    """Bisect: rows before ``low`` can be read, those from ``low`` to ``high`` cannot."""
    low, high = 0, len(rows.rows)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _is_readable(rows, slice(low, middle), columns) else (low, middle)
    return low


def _first_where(n: int, broken: Callable[[int], bool]) -> int:
    """Index of the first of n items that is broken, by a test of the first ``end`` items; at least one is."""
    return bisect_left(range(1, n), True, key=broken)


def _is_readable(rows: CsvRows, span: slice, columns: Sequence[Column]) -> bool:
    try:
        read_rows(*_bytes_and_names(rows, span), columns, rows.delimiter, _longest(rows, span))
    except pa.ArrowInvalid:
        return False
    return True


def _bytes_and_names(rows: CsvRows, span: slice) -> tuple[ByteArray, tuple[str, ...]]:
    return span_bytes(rows.data, rows.rows, span), rows.names


def _longest(rows: CsvRows, span: slice) -> int:
    return int(rows.rows.lengths[span].max())


T = TypeVar("T")

#: Bytes that one thread parses at a time.
CHUNK_BYTES: Final = 4 << 20
#: Bytes whose columns are inferred together if smaller runs disagree.
_LARGE_CHUNK: Final = 64 << 20


class CsvFile:
    """One CSV file, cut into rows."""

    def __init__(self, rows: CsvRows) -> None:
        self._rows = rows
        self._inferred: list[InferredRows] = []

    def __len__(self) -> int:
        return len(self._rows.rows)

    @property
    def ranges(self) -> Ranges:
        """Extents of the rows without their line breaks."""
        return self._rows.rows

    def find_columns(self, keep: Collection[str] = ()) -> list[ObservedColumn]:
        """Infer dtypes, the widest of all runs. Dates and times stay strings."""
        runs = self._infer(keep, CHUNK_BYTES)
        if not runs_agree([run.columns for run in runs]):
            runs = self._infer(keep, _LARGE_CHUNK)
        self._inferred = runs if keep else []
        return merge_columns([run.columns for run in runs])

    def table(self, columns: Sequence[Column]) -> None:
        """None: rows are read from the bytes of the file."""

    def present(self, columns: Sequence[Column], optional: Collection[str]) -> list[Column]:
        """The columns without the optional ones that the header lacks; present ones may stand anywhere among the others."""
        header = {name: place for place, name in enumerate(self._rows.names)}
        kept = [column for column in columns if column.name in header or column.name not in optional]
        inner = [column.name for column in kept if column.name not in optional]
        if inner != [name for name in self._rows.names if name not in optional]:
            return kept
        return sorted(kept, key=lambda column: header[column.name])

    def convert(self, columns: Sequence[Column], names: Collection[str]) -> dict[str, pa.Array]:
        """Check all cells and keep some columns. The header must have their order: readers parse rows without it."""
        expected = [column.name for column in columns]
        if list(self._rows.names) != expected:
            require_names(self._rows.path, self._rows.names, expected)
            raise SchemaMismatch(self._rows.path, ", ".join(expected), ", ".join(self._rows.names))
        runs, self._inferred = self._inferred, []
        reparsed = columns_to_reparse(columns, names, runs) if runs and not self._may_misread(columns, runs) else None
        if reparsed is None:
            return self._typed(columns, names)
        others = set(names) - {column.name for column in reparsed}
        kept = joined_columns(columns, others, [run.kept for run in runs])
        return kept | (self._typed(reparsed, names) if reparsed else {})

    def _may_misread(self, columns: Sequence[Column], runs: Sequence[InferredRows]) -> bool:
        """Test for cells that Arrow may take for integers and not for fractions, in a column of fractions: 0x10."""
        inferred = [{run.columns[i].dtype for run in runs} for i in range(len(columns))]
        has_integers = any(c.dtype == "float64" and "int64" in found for c, found in zip(columns, inferred))
        return has_integers and any(contains(self._rows.data, ord(letter)) for letter in "xX")

    def _infer(self, keep: Collection[str], max_bytes: int) -> list[InferredRows]:
        def infer(data: ByteArray, longest: int) -> InferredRows:
            return InferredRows.of(infer_rows(data, self._rows.names, self._rows.delimiter, longest), keep)

        return self._parse_runs(infer, max_bytes)

    def _typed(self, columns: Sequence[Column], names: Collection[str]) -> dict[str, pa.Array]:
        # Every cell is text, so strings that are not kept need no check. Without any column Arrow would parse all.
        parsed = [column for column in columns if column.dtype != "string" or column.name in names] or list(columns[:1])

        def read(data: ByteArray, longest: int) -> TypedRows:
            return TypedRows.of(read_rows(data, self._rows.names, parsed, self._rows.delimiter, longest), parsed, names)

        parts = self._parse_runs(read, CHUNK_BYTES, columns)
        require_present(self._rows.path, columns, parts)
        return joined_columns(columns, names, [part.kept for part in parts])

    def _parse_runs(self, parse: Callable[[ByteArray, int], T], max_bytes: int, columns: Sequence[Column] = ()) -> list[T]:
        """Apply a function of (bytes, longest row) to all runs of rows, in threads."""
        rows = self._rows
        longest = int(rows.rows.lengths.max())
        try:
            return list(
                map_in_threads(lambda span: parse(span_bytes(rows.data, rows.rows, span), longest), spans(rows.rows, max_bytes))
            )
        except pa.ArrowInvalid as error:
            # Inference accepts every cell, so without columns only a ragged row can be at fault.
            raise ragged_row(rows) or (bad_cell(rows, columns) if columns else DataError(rows.path, str(error))) from error


class Csv:
    """Row format ``csv``."""

    def __init__(self, spec: CsvFormat) -> None:
        self._delimiter = spec.delimiter

    def open(self, file: LoadedFile) -> CsvFile:
        """Find the rows of a file."""
        return CsvFile(find_rows(file.path, file.data, self._delimiter))
