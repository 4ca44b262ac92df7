"""Row decoders, one per row format: from the bytes of samples to typed columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fastpath.array_types import ByteArray, Int64Array
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.rows.arrow_rows import Fetch, as_arrays, no_rows, read_objects, read_rows
from modyn_dagster.spec.formats import CsvFormat, FilesFormat, FixedRowsFormat, Format, JsonlFormat, ParquetFormat

#: Strings are stored as the position of their bytes in the shard.
_STRING: Final = np.dtype([("offset", "<i8"), ("length", "<i8")])
_FIELDS: Final = {"int64": "<i8", "float64": "<f8", "bool": "?", "string": _STRING, "timestamp": "<M8[us]"}


def is_sub_array(dtype: str) -> bool:
    """Test for the dtype of a column with several values per sample.

    >>> is_sub_array("(16,)<f4"), is_sub_array("float64")
    (True, False)
    """
    return dtype.startswith("(")


def row_dtype(columns: Sequence[Column]) -> np.dtype[Any]:
    """Record dtype of one converted row in a shard. A dtype of no scalar is that of a sub-array, as NumPy writes it."""
    return np.dtype([(column.name, _FIELDS.get(column.dtype, column.dtype)) for column in columns])


def _decode_field(column: Column, field: npt.NDArray[Any], fetch: Fetch) -> npt.NDArray[Any]:
    if column.dtype != "string":
        return np.ascontiguousarray(field)
    text, offsets = fetch(np.ascontiguousarray(field["offset"]), np.ascontiguousarray(field["length"]))
    strings = pa.LargeStringArray.from_buffers(len(field), pa.py_buffer(offsets), pa.py_buffer(text))
    return np.asarray(strings.to_numpy(zero_copy_only=False), dtype=object)


class RowDecoder(Protocol):
    """Decoder of the samples of one row format."""

    @property
    def separator(self) -> bytes:
        """Bytes that must stand after each row."""

    def decode(
        self, columns: Sequence[Column], rows: ByteArray, offsets: Int64Array, fetch: Fetch
    ) -> Mapping[str, npt.NDArray[Any]]:
        """Columns of n consecutive rows; row i and its separator are ``rows[offsets[i]:offsets[i + 1]]``."""


@dataclass(frozen=True, slots=True)
class CsvDecoder:
    """Decoder of CSV rows, which ingestion has checked."""

    delimiter: str

    separator: ClassVar[bytes] = b"\n"

    def decode(
        self, columns: Sequence[Column], rows: ByteArray, offsets: Int64Array, fetch: Fetch
    ) -> Mapping[str, npt.NDArray[Any]]:
        """Parse rows of any files of the dataset."""
        if len(offsets) == 1:
            return no_rows(columns)
        names = [column.name for column in columns]
        return as_arrays(columns, read_rows(rows, names, columns, self.delimiter, int(np.diff(offsets).max())))


@dataclass(frozen=True, slots=True)
class JsonlDecoder:
    """Decoder of JSON lines, which ingestion has checked."""

    separator: ClassVar[bytes] = b"\n"

    def decode(
        self, columns: Sequence[Column], rows: ByteArray, offsets: Int64Array, fetch: Fetch
    ) -> Mapping[str, npt.NDArray[Any]]:
        """Parse lines of any files of the dataset."""
        if len(offsets) == 1:
            return no_rows(columns)
        return as_arrays(columns, read_objects(rows, columns, int(np.diff(offsets).max()), "ignore"))


@dataclass(frozen=True, slots=True)
class ParquetDecoder:
    """Decoder of the fixed-width rows into which Parquet files are converted."""

    separator: ClassVar[bytes] = b""

    def decode(
        self, columns: Sequence[Column], rows: ByteArray, offsets: Int64Array, fetch: Fetch
    ) -> Mapping[str, npt.NDArray[Any]]:
        """Fields of the rows; strings are fetched from the shard."""
        records = rows.view(row_dtype(columns))
        return {column.name: _decode_field(column, records[column.name], fetch) for column in columns}


@dataclass(frozen=True, slots=True)
class FixedRowsDecoder:
    """Decoder of binary records."""

    dtype: np.dtype[Any]

    separator: ClassVar[bytes] = b""

    def decode(
        self, columns: Sequence[Column], rows: ByteArray, offsets: Int64Array, fetch: Fetch
    ) -> Mapping[str, npt.NDArray[Any]]:
        """Fields in their own dtypes and native byte order; sub-arrays keep their shape."""
        records = rows.view(self.dtype)
        fields = {column.name: records[column.name] for column in columns}
        return {name: np.ascontiguousarray(field, field.dtype.newbyteorder("=")) for name, field in fields.items()}


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
