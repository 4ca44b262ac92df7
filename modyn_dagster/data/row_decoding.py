"""Decoding of rows: the bytes of samples to typed columns, for each row format."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.arrow_rows import ByteArray, Fetch, Int64Array, _read_objects, as_arrays, no_rows, read_rows
from modyn_dagster.spec.formats import CsvFormat, FilesFormat, FixedRowsFormat, Format, JsonlFormat, ParquetFormat


def _native(field: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(field, dtype=field.dtype.newbyteorder("="))


#: A string is where its bytes lie in the shard.
_STRING: Final = np.dtype([("offset", "<i8"), ("length", "<i8")])
_FIELDS: Final = {"int64": "<i8", "float64": "<f8", "bool": "?", "string": _STRING, "timestamp": "<M8[us]"}


def row_dtype(columns: Sequence[Column]) -> np.dtype[Any]:
    """What one row looks like in a shard."""
    return np.dtype([(column.name, _FIELDS[column.dtype]) for column in columns])


def _decoded(column: Column, field: npt.NDArray[Any], fetch: Fetch) -> npt.NDArray[Any]:
    if column.dtype != "string":
        return np.ascontiguousarray(field)
    text, offsets = fetch(np.ascontiguousarray(field["offset"]), np.ascontiguousarray(field["length"]))
    strings = pa.LargeStringArray.from_buffers(len(field), pa.py_buffer(offsets), pa.py_buffer(text))
    return np.asarray(strings.to_numpy(zero_copy_only=False), dtype=object)


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
