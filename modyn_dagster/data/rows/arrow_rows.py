"""Rows of CSV and JSONL files as Arrow tables. Ingestion and reading share these options, so both parse the same values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.json as arrow_json

from fastpath.array_types import ByteArray, Int64Array
from fastpath.arrays.lines import contains
from modyn_dagster.catalog.datasets import Column

ARROW_TYPES: Final[Mapping[str, pa.DataType]] = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
}

#: Bytes of Arrow's parsing blocks.
_BLOCK: Final = 1 << 20

#: Reads further byte ranges of the files with the rows: from offset and length per row to ``(bytes, offsets int64[n + 1])``.
Fetch = Callable[[Int64Array, Int64Array], tuple[ByteArray, Int64Array]]

_NUMPY_TYPES: Final = {"int64": np.int64, "float64": np.float64, "bool": np.bool_, "string": np.object_}


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Arrow schema of the columns of a dataset."""
    return pa.schema([(column.name, ARROW_TYPES[column.dtype]) for column in columns])


def _without_nulls(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if values.null_count == 0:
        return values
    return pc.fill_null(values, float("nan") if pa.types.is_floating(values.type) else "")


def as_arrays(columns: Sequence[Column], table: pa.Table) -> Mapping[str, npt.NDArray[Any]]:
    """NumPy columns of a table: int64, float64, bool or str objects."""
    return {column.name: _without_nulls(table[column.name]).to_numpy() for column in columns}


def no_rows(columns: Sequence[Column]) -> Mapping[str, npt.NDArray[Any]]:
    """NumPy columns, as by ``as_arrays``, for zero rows."""
    return {column.name: np.empty(0, dtype=_NUMPY_TYPES[column.dtype]) for column in columns}


def read_objects(
    data: ByteArray, columns: Sequence[Column] | None, longest: int, unexpected: Literal["infer", "ignore"]
) -> pa.Table:
    """Parse JSON lines, one flat object each.

    Args:
        data: bytes of the lines.
        columns: of the dataset; None infers dtypes.
        longest: bytes of the longest line.
        unexpected: treatment of fields that are no columns.

    Raises:
        pyarrow.ArrowInvalid: a line is not valid, or a value is not of its column's dtype.
    """
    schema = None if columns is None else arrow_schema(columns)
    # A block may begin in the middle of a line, so it must hold two.
    read = arrow_json.ReadOptions(use_threads=False, block_size=max(_BLOCK, 2 * longest + 2))
    parse = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected)
    return arrow_json.read_json(pa.BufferReader(pa.py_buffer(np.ascontiguousarray(data))), read, parse)


#: Words for a missing number. Text is never missing: string columns keep these words as they are.
MISSING: Final = ["", "NA", "N/A", "NaN", "nan", "NULL", "null"]
_TRUE: Final = ["true", "True", "TRUE", "1"]
_FALSE: Final = ["false", "False", "FALSE", "0"]


def read_rows(data: ByteArray, names: Sequence[str], columns: Sequence[Column], delimiter: str, longest_row: int) -> pa.Table:
    """Parse CSV rows without a header, at least one.

    Args:
        data: contiguous bytes.
        names: of all columns, in the order of the file.
        columns: to parse, at least one, with their dtypes.
        delimiter: one ASCII character.
        longest_row: its bytes; Arrow parses in blocks that must hold a row.

    Raises:
        pyarrow.ArrowInvalid: a ragged row, or a cell that is not of its dtype.
    """
    included = [column.name for column in columns]
    return _read(data, names, delimiter, longest_row, column_types=arrow_schema(columns), include_columns=included)


def infer_rows(data: ByteArray, names: Sequence[str], delimiter: str, longest_row: int) -> pa.Table:
    """Parse CSV rows with all columns and infer their dtypes. Text that looks like a timestamp stays text."""
    # Timestamps are inferred only in the listed formats, and no text has this one.
    return _read(data, names, delimiter, longest_row, timestamp_parsers=["%%"])


def _read(data: ByteArray, names: Sequence[str], delimiter: str, longest_row: int, **conversion: Any) -> pa.Table:
    convert = arrow_csv.ConvertOptions(
        null_values=MISSING,
        true_values=_TRUE,
        false_values=_FALSE,
        strings_can_be_null=False,
        # UTF-8 was checked before, with the number of the row at hand.
        check_utf8=False,
        **conversion,
    )
    # A block may begin in the middle of a row, so it must hold two.
    data = np.ascontiguousarray(data)
    read = arrow_csv.ReadOptions(column_names=list(names), use_threads=False, block_size=max(_BLOCK, 2 * longest_row + 2))
    parse = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=contains(data, ord('"')))
    return arrow_csv.read_csv(pa.BufferReader(pa.py_buffer(data)), read, parse, convert)
