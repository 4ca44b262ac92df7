"""CSV: rows are read where they lie in the file, and parsed by Arrow with the dataset's dtypes each time."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.errors import DataError, SchemaMismatch
from modyn_dagster.ingestion.columns import Found, merge_columns
from modyn_dagster.ingestion.formats.base import ByteArray, Fetch, Int64Array, Ranges
from modyn_dagster.ingestion.formats.csv_faults import bad_cell, ragged_row
from modyn_dagster.ingestion.formats.csv_rows import CsvRows, find_rows
from modyn_dagster.ingestion.formats.csv_table import read_rows
from modyn_dagster.ingestion.formats.tables import as_arrays, filled, found_columns, no_rows
from modyn_dagster.ingestion.formats.text import span_bytes, spans
from modyn_dagster.ingestion.source import LoadedFile
from modyn_dagster.spec.dataset import CsvFormat

_CHUNK: Final = 64 << 20


class CsvFile:
    """One CSV file, cut into rows."""

    def __init__(self, rows: CsvRows) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows.rows)

    @property
    def ranges(self) -> Ranges:
        """The rows without their breaks."""
        return self._rows.rows

    def find_columns(self) -> list[Found]:
        """Dtypes by Arrow's inference, the widest of all chunks; dates and times stay strings."""
        return merge_columns([found_columns(table) for table in self._read(None)])

    def convert(self, columns: Sequence[Column], wanted: Collection[str]) -> dict[str, pa.Array]:
        """Parse everything, keep what is wanted. Columns must stand in the dataset's order: rows are read without the header."""
        names = [column.name for column in columns]
        if list(self._rows.names) != names:
            raise SchemaMismatch(self._rows.path, ", ".join(names), ", ".join(self._rows.names))
        table = filled(self._rows.path, columns, pa.concat_tables(self._read(columns)))
        return {name: table[name].combine_chunks() for name in wanted}

    def _read(self, columns: Sequence[Column] | None) -> list[pa.Table]:
        rows = self._rows
        longest = int(rows.rows.lengths.max())
        chunks = (span_bytes(rows.data, rows.rows, span) for span in spans(rows.rows, _CHUNK))
        try:
            return [read_rows(chunk, rows.names, columns, rows.delimiter, longest) for chunk in chunks]
        except pa.ArrowInvalid as error:
            # Inference takes any cell, so without columns only a ragged row can be at fault.
            raise ragged_row(rows) or (bad_cell(rows, columns) if columns else DataError(rows.path, str(error))) from error


class Csv:
    """The format ``csv``."""

    separator = b"\n"

    def __init__(self, spec: CsvFormat) -> None:
        self._delimiter = spec.delimiter

    def open(self, file: LoadedFile) -> CsvFile:
        """Find the rows of a file."""
        return CsvFile(find_rows(file.path, file.data, self._delimiter))

    def decode(
        self, columns: Sequence[Column], rows: ByteArray, offsets: Int64Array, fetch: Fetch
    ) -> Mapping[str, npt.NDArray[Any]]:
        """Parse rows from anywhere in the dataset; they were checked when they were ingested."""
        if len(offsets) == 1:
            return no_rows(columns)
        names = [column.name for column in columns]
        return as_arrays(columns, read_rows(rows, names, columns, self._delimiter, int(np.diff(offsets).max())))
