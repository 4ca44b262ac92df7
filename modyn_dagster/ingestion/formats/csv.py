"""CSV: rows are read where they lie in the file, and parsed by Arrow with the dataset's dtypes each time."""

from collections.abc import Callable, Collection, Sequence
from typing import Final, TypeVar

import pyarrow as pa

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.errors import DataError, SchemaMismatch
from modyn_dagster.ingestion.columns import Found, merge_columns
from modyn_dagster.ingestion.formats.base import ByteArray, Ranges
from modyn_dagster.ingestion.formats.csv_faults import bad_cell, ragged_row
from modyn_dagster.ingestion.formats.csv_rows import CsvRows, find_rows
from modyn_dagster.ingestion.formats.csv_table import infer_rows, read_rows
from modyn_dagster.ingestion.formats.parsed import Inferred, Typed, agree, joined_columns, require_present, to_read_again
from modyn_dagster.ingestion.formats.text import span_bytes, spans
from modyn_dagster.ingestion.source import LoadedFile
from modyn_dagster.ingestion.workers import in_order
from modyn_dagster.spec.dataset import CsvFormat

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
        again = to_read_again(columns, wanted, runs) if runs else None
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
                in_order(lambda span: parse(span_bytes(rows.data, rows.rows, span), longest), spans(rows.rows, max_bytes))
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
