"""Arrow tables of parsed rows: which columns they show, what is missing, and NumPy arrays for readers."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.ingestion.columns import ARROW_TYPES, Found

_NUMPY_TYPES: Final = {"int64": np.int64, "float64": np.float64, "bool": np.bool_, "string": np.object_}


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Columns of a dataset as Arrow's."""
    return pa.schema([(column.name, ARROW_TYPES[column.dtype]) for column in columns])


def found_columns(table: pa.Table) -> list[Found]:
    """Columns of a table whose types Arrow inferred; what is no number and no truth value stays text."""
    return [Found(name, _dtype_of(table[name].type), table[name].null_count > 0) for name in table.column_names]


def _dtype_of(found: pa.DataType) -> str:
    if pa.types.is_null(found):
        return "nothing"
    return next((dtype for dtype, arrow_type in ARROW_TYPES.items() if arrow_type == found), "string")


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
