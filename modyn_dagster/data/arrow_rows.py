"""Rows of CSV and JSONL files as Arrow tables; ingestion and reading share these options, so that they parse alike."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.json as arrow_json

from fastpath.arrays.lines import contains
from modyn_dagster.catalog.datasets import Column

ARROW_TYPES: Final[Mapping[str, pa.DataType]] = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
}

ByteArray = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]
#: More byte ranges of the files that hold the rows, one ``(offset, length)`` per row: ``(bytes, offsets int64[n + 1])``.
Fetch = Callable[[Int64Array, Int64Array], tuple[ByteArray, Int64Array]]

_NUMPY_TYPES: Final = {"int64": np.int64, "float64": np.float64, "bool": np.bool_, "string": np.object_}


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Columns of a dataset as Arrow's."""
    return pa.schema([(column.name, ARROW_TYPES[column.dtype]) for column in columns])


def _without_nulls(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if values.null_count == 0:
        return values
    return pc.fill_null(values, float("nan") if pa.types.is_floating(values.type) else "")


def as_arrays(columns: Sequence[Column], table: pa.Table) -> Mapping[str, npt.NDArray[Any]]:
    """NumPy columns for readers: int64, float64, bool or str objects."""
    return {column.name: _without_nulls(table[column.name]).to_numpy() for column in columns}


def no_rows(columns: Sequence[Column]) -> Mapping[str, npt.NDArray[Any]]:
    """The same for no rows at all."""
    return {column.name: np.empty(0, dtype=_NUMPY_TYPES[column.dtype]) for column in columns}


_JSON_BLOCK: Final = 1 << 20


def _read_objects(
    data: ByteArray, columns: Sequence[Column] | None, longest: int, unexpected: Literal["infer", "ignore"]
) -> pa.Table:
    schema = None if columns is None else arrow_schema(columns)
    # One more block than a line needs: a block may begin in the middle of one.
    read = arrow_json.ReadOptions(use_threads=False, block_size=max(_JSON_BLOCK, 2 * longest + 2))
    parse = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected)
    return arrow_json.read_json(pa.BufferReader(pa.py_buffer(np.ascontiguousarray(data))), read, parse)


#: Words for a missing number. Text is never missing: these words stay as they are in string columns.
MISSING: Final = ["", "NA", "N/A", "NaN", "nan", "NULL", "null"]
_TRUE: Final = ["true", "True", "TRUE", "1"]
_FALSE: Final = ["false", "False", "FALSE", "0"]
_BLOCK: Final = 1 << 20


def read_rows(data: ByteArray, names: Sequence[str], columns: Sequence[Column], delimiter: str, longest_row: int) -> pa.Table:
    """Rows without a header, at least one.

    Args:
        data: contiguous bytes.
        names: of all columns in the file's order.
        columns: to parse, at least one, with their dtypes.
        delimiter: one ASCII character.
        longest_row: in bytes; Arrow parses in blocks that must hold a row.

    Raises:
        pyarrow.ArrowInvalid: a ragged row, or a cell that is not of its dtype.
    """
    asked = [column.name for column in columns]
    return _read(data, names, delimiter, longest_row, column_types=arrow_schema(columns), include_columns=asked)


def infer_rows(data: ByteArray, names: Sequence[str], delimiter: str, longest_row: int) -> pa.Table:
    """The same with all columns, of the dtypes that Arrow sees in them; text that looks like a timestamp stays text."""
    # A timestamp would have to look like the only format given, which none does.
    return _read(data, names, delimiter, longest_row, timestamp_parsers=["%%"])


def _read(data: ByteArray, names: Sequence[str], delimiter: str, longest_row: int, **conversion: Any) -> pa.Table:
    convert = arrow_csv.ConvertOptions(
        null_values=MISSING,
        true_values=_TRUE,
        false_values=_FALSE,
        strings_can_be_null=False,
        # Already checked, and with the row at hand.
        check_utf8=False,
        **conversion,
    )
    # One more block than a row needs: a block may begin in the middle of one.
    data = np.ascontiguousarray(data)
    read = arrow_csv.ReadOptions(column_names=list(names), use_threads=False, block_size=max(_BLOCK, 2 * longest_row + 2))
    parse = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=contains(data, ord('"')))
    return arrow_csv.read_csv(pa.BufferReader(pa.py_buffer(data)), read, parse, convert)
