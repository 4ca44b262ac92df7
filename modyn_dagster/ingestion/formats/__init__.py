"""Row formats, by the kind in a dataset's spec. Samples that are files are read by ``batches.file_pieces``."""

from modyn_dagster.ingestion.formats.base import RowFormat
from modyn_dagster.ingestion.formats.csv import Csv
from modyn_dagster.ingestion.formats.fixed_rows import FixedRows
from modyn_dagster.ingestion.formats.jsonl import Jsonl
from modyn_dagster.ingestion.formats.parquet import Parquet
from modyn_dagster.spec.formats import CsvFormat, FixedRowsFormat, JsonlFormat, ParquetFormat

__all__ = ["RowFormat", "row_format"]


def row_format(spec: CsvFormat | JsonlFormat | ParquetFormat | FixedRowsFormat) -> RowFormat:
    """The row format of a spec."""
    match spec:
        case CsvFormat():
            return Csv(spec)
        case JsonlFormat():
            return Jsonl(spec)
        case ParquetFormat():
            return Parquet(spec)
        case FixedRowsFormat():
            return FixedRows(spec)
