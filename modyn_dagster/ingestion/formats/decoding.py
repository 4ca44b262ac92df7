"""Decoding of rows: the bytes of samples to typed columns, for each row format."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.ingestion.formats.base import ByteArray, Fetch, Int64Array
from modyn_dagster.ingestion.formats.csv_table import read_rows
from modyn_dagster.ingestion.formats.fixed_rows import _native
from modyn_dagster.ingestion.formats.jsonl import _read_objects
from modyn_dagster.ingestion.formats.parquet import _decoded, row_dtype
from modyn_dagster.ingestion.formats.tables import as_arrays, no_rows
from modyn_dagster.spec.dataset import CsvFormat, FilesFormat, FixedRowsFormat, Format, JsonlFormat, ParquetFormat


class RowDecoder(Protocol):
    """Decoder of the rows of one format."""

    @property
    def separator(self) -> bytes:
        """Bytes that must stand after each row."""

    def decode(
        self, columns: Sequence[Column], rows: ByteArray, offsets: Int64Array, fetch: Fetch
    ) -> Mapping[str, npt.NDArray[Any]]:
        """Columns of n rows laid one after the other, row i with its separator at ``rows[offsets[i]:offsets[i + 1]]``."""


@dataclass(frozen=True, slots=True)
class CsvDecoder:
    """Decoder of CSV rows; they were checked when they were ingested."""

    delimiter: str

    @property
    def separator(self) -> bytes:
        """A line break."""
        return b"\n"

    def decode(
        self, columns: Sequence[Column], rows: ByteArray, offsets: Int64Array, fetch: Fetch
    ) -> Mapping[str, npt.NDArray[Any]]:
        """Parse rows from anywhere in the dataset."""
        if len(offsets) == 1:
            return no_rows(columns)
        names = [column.name for column in columns]
        return as_arrays(columns, read_rows(rows, names, columns, self.delimiter, int(np.diff(offsets).max())))


@dataclass(frozen=True, slots=True)
class JsonlDecoder:
    """Decoder of JSON lines; they were checked when they were ingested."""

    @property
    def separator(self) -> bytes:
        """A line break."""
        return b"\n"

    def decode(
        self, columns: Sequence[Column], rows: ByteArray, offsets: Int64Array, fetch: Fetch
    ) -> Mapping[str, npt.NDArray[Any]]:
        """Parse lines from anywhere in the dataset."""
        if len(offsets) == 1:
            return no_rows(columns)
        return as_arrays(columns, _read_objects(rows, columns, int(np.diff(offsets).max()), "ignore"))


@dataclass(frozen=True, slots=True)
class ParquetDecoder:
    """Decoder of the fixed-width rows that Parquet files are converted to."""

    @property
    def separator(self) -> bytes:
        """Nothing: rows have one width."""
        return b""

    def decode(
        self, columns: Sequence[Column], rows: ByteArray, offsets: Int64Array, fetch: Fetch
    ) -> Mapping[str, npt.NDArray[Any]]:
        """Fields of the rows; strings take a second look into the shard."""
        records = rows.view(row_dtype(columns))
        return {column.name: _decoded(column, records[column.name], fetch) for column in columns}


@dataclass(frozen=True, slots=True)
class FixedRowsDecoder:
    """Decoder of binary records."""

    dtype: np.dtype[Any]

    @property
    def separator(self) -> bytes:
        """Nothing: rows have one width."""
        return b""

    def decode(
        self, columns: Sequence[Column], rows: ByteArray, offsets: Int64Array, fetch: Fetch
    ) -> Mapping[str, npt.NDArray[Any]]:
        """Fields in their own dtype and the machine's byte order; sub-arrays keep their shape."""
        records = rows.view(self.dtype)
        return {column.name: _native(records[column.name]) for column in columns}


def row_decoder(spec: Format) -> RowDecoder | None:
    """The decoder of a format; None where samples are files."""
    match spec:
        case CsvFormat():
            return CsvDecoder(spec.delimiter)
        case JsonlFormat():
            return JsonlDecoder()
        case ParquetFormat():
            return ParquetDecoder()
        case FixedRowsFormat():
            return FixedRowsDecoder(_record_dtype(spec))
        case FilesFormat():
            return None


def record_dtype(spec: Format, columns: Sequence[Column]) -> np.dtype[Any] | None:
    """The dtype of samples that are records; None for other formats, and for Parquet before its columns are known."""
    match spec:
        case FixedRowsFormat():
            return _record_dtype(spec)
        case ParquetFormat() if columns:
            return row_dtype(columns)
        case _:
            return None


def _record_dtype(spec: FixedRowsFormat) -> np.dtype[Any]:
    return np.dtype([(name, code) for name, code in spec.dtype])
