"""Row formats by the kind that a dataset's spec names. Files without rows are in ``formats.files``."""

from modyn_dagster.ingestion.formats.base import RowFormat
from modyn_dagster.ingestion.formats.csv import Csv
from modyn_dagster.ingestion.formats.fixed_rows import FixedRows
from modyn_dagster.ingestion.formats.jsonl import Jsonl
from modyn_dagster.ingestion.formats.parquet import Parquet
from modyn_dagster.spec.formats import CsvFormat, FixedRowsFormat, JsonlFormat, ParquetFormat

__all__ = ["RowFormat", "row_format"]


def row_format(spec: CsvFormat | JsonlFormat | ParquetFormat | FixedRowsFormat) -> RowFormat:
    """The code behind a format's spec."""
    match spec:
        case CsvFormat():
            return Csv(spec)
        case JsonlFormat():
            return Jsonl(spec)
        case ParquetFormat():
            return Parquet(spec)
        case FixedRowsFormat():
            return FixedRows(spec)
