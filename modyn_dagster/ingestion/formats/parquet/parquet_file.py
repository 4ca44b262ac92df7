"""Parquet files, converted into fixed-width rows of a shard, which are followed by the bytes of their strings."""

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fastpath.array_types import ByteArray, Int64Array
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.rows.row_decoding import row_dtype
from modyn_dagster.errors import DataError, SchemaMismatch
from modyn_dagster.ingestion.formats.columns import ObservedColumn, require_names
from modyn_dagster.ingestion.formats.parquet.nested import ELEMENTS, fixed_lists, flat, is_list, list_dtype, numbers_of
from modyn_dagster.ingestion.sources.files import LoadedFile
from modyn_dagster.spec.formats import ParquetFormat

#: Memory of a value of any column, on the average, at the least.
_LEAST_BYTES: Final = 1
_ARROW: Final[Mapping[str, pa.DataType]] = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.large_string(),
    "timestamp": pa.timestamp("us"),
}


class ParquetFile:
    """One Parquet file."""

    ranges = None

    def __init__(self, path: str, content: pa.Table) -> None:
        self._path, self._content = path, content

    def __len__(self) -> int:
        return len(self._content)

    def find_columns(self, keep: Collection[str] = ()) -> list[ObservedColumn]:
        """Columns by the schema of the file; dates count as timestamps, lists of numbers as sub-arrays of their length."""
        return [
            ObservedColumn(field.name, self._dtype(field), self._content[field.name].null_count > 0)
            for field in self._content.schema
        ]

    def _dtype(self, field: pa.Field) -> str:
        type_ = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        for dtype, tests in _KINDS.items():
            if any(test(type_) for test in tests):
                return dtype
        if is_list(type_) and type_.value_type in ELEMENTS:
            return list_dtype(self._path, field.name, self._content[field.name])
        raise DataError(self._path, f"columns of type {field.type} are not supported", column=field.name)

    def present(self, columns: Sequence[Column], optional: Collection[str]) -> list[Column]:
        """The columns without the optional ones that the file lacks, in the dataset's order."""
        lacking = set(optional) - set(self._content.column_names)
        return [column for column in columns if column.name not in lacking]

    def convert(self, columns: Sequence[Column], names: Collection[str]) -> dict[str, pa.Array]:
        """Check all cells and keep some columns."""
        converted = self.table(columns)
        for name in names:
            if pa.types.is_fixed_size_list(converted[name].type):
                raise DataError(self._path, "lists of numbers cannot be a time, label, id or attribute", column=name)
        return {name: converted[name].combine_chunks() for name in names}

    def table(self, columns: Sequence[Column]) -> pa.Table:
        """All columns in the dataset's order and dtypes; only timestamps may be null. Lists are of a fixed size."""
        dtypes = {column.name: column.dtype for column in self.find_columns()}
        require_names(self._path, list(dtypes), [column.name for column in columns])
        for column in columns:
            if dtypes[column.name] not in _accepted(column.dtype):
                expected = f"{column.name} {column.dtype}"
                raise SchemaMismatch(self._path, expected, f"{column.name} {dtypes[column.name]}")
        return pa.table({column.name: self._column(column) for column in columns})

    def _column(self, column: Column) -> pa.ChunkedArray:
        values = self._content[column.name]
        if is_list(values.type):
            return fixed_lists(values)
        if values.null_count and column.dtype in ("int64", "bool"):
            row = int(np.argmax(values.is_null().to_numpy()))
            raise DataError(self._path, f"the value is missing, the column is {column.dtype}", row=row + 1, column=column.name)
        try:
            # Nanoseconds are truncated; of longer units only those are taken that do not overflow.
            truncates = pa.types.is_timestamp(values.type) and values.type.unit == "ns"
            cast = values.cast(_ARROW[column.dtype], safe=not truncates)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(self._path, f"cannot be read as {column.dtype}: {error}", column=column.name) from error
        if column.dtype in ("int64", "bool", "timestamp"):
            return cast
        return pc.fill_null(cast, float("nan") if column.dtype == "float64" else "")


class Parquet:
    """Row format ``parquet``."""

    def __init__(self, spec: ParquetFormat) -> None:
        self._spec = spec

    def open(self, file: LoadedFile) -> ParquetFile:
        """Read all row groups."""
        if len(file.data) == 0:
            raise DataError(file.path, "the file is empty, expected Parquet")
        try:
            parquet = pq.ParquetFile(pa.BufferReader(pa.py_buffer(file.data)))
            _require_room(file.path, parquet.metadata)
            content = parquet.read(use_threads=False)
            # Arrow checks neither that texts are UTF-8, nor that indexes of dictionaries lie inside.
            content.validate(full=True)
            content = flat(file.path, content)
            names = content.column_names
        except (pa.ArrowException, OSError, ValueError, LookupError, OverflowError, MemoryError) as error:
            raise DataError(file.path, f"is not a valid Parquet file: {error}") from error
        if len(set(names)) < len(names):
            raise DataError(file.path, "the file has a column twice", column=Counter(names).most_common(1)[0][0])
        if content.num_rows == 0:
            raise DataError(file.path, "the file has columns but no rows")
        return ParquetFile(file.path, content)


def _require_room(path: str, metadata: pq.FileMetaData) -> None:
    """Raise ``DataError`` for a file whose values cannot fit into memory: a run of equal values takes no room in a file."""
    n_bytes = _LEAST_BYTES * metadata.num_rows * metadata.num_columns
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if n_bytes > memory:
        raise DataError(
            path,
            f"the file announces {metadata.num_rows} rows of {metadata.num_columns} columns, which take more than the "
            f"{memory} bytes of memory of this machine; split it",
        )


def encode_table(columns: Sequence[Column], content: pa.Table) -> tuple[list[ByteArray], int]:
    """Encode a table as the parts of a shard, to write one after the other; also returns the width of its rows."""
    records = np.empty(len(content), dtype=row_dtype(columns))
    parts: list[ByteArray] = [records.view(np.uint8)]
    end = records.nbytes
    for column in columns:
        values = content[column.name].combine_chunks()
        if column.dtype != "string":
            records[column.name] = numbers_of(values)
            continue
        offsets, text = _text_of(values)
        records[column.name]["offset"] = end + offsets[:-1]
        records[column.name]["length"] = np.diff(offsets)
        parts.append(text)
        end += len(text)
    return parts, records.dtype.itemsize


def _text_of(values: pa.LargeStringArray) -> tuple[Int64Array, ByteArray]:
    """Bytes of a string column, and their offsets from 0."""
    _, offset_buffer, data = values.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64)[values.offset : values.offset + len(values) + 1]
    text = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    return offsets - offsets[0], text[offsets[0] : offsets[-1]]


def _accepted(dtype: str) -> set[str]:
    if dtype not in _ARROW:
        return {dtype}
    return {dtype, "nothing", "int64"} if dtype == "float64" else {dtype, "nothing"}


_KINDS: Final = {
    "nothing": (pa.types.is_null,),
    "int64": (pa.types.is_integer,),
    "float64": (pa.types.is_floating,),
    "bool": (pa.types.is_boolean,),
    "string": (pa.types.is_string, pa.types.is_large_string),
    "timestamp": (pa.types.is_timestamp, pa.types.is_date),
}
