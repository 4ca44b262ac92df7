"""Runs of rows parsed by Arrow, with inferred or given dtypes: missing values, agreement, and joined columns."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.rows.arrow_rows import ARROW_TYPES
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.formats.columns import ObservedColumn, observed_columns

#: Dtypes that inference may give to sound columns of a dtype.
_FITTING: Final = {"float64": {"float64", "int64", "nothing"}, "int64": {"int64"}, "bool": {"bool"}}


@dataclass(frozen=True, slots=True)
class InferredRows:
    """Rows parsed with inferred dtypes: the observed columns, and the cells of the columns to keep."""

    columns: list[ObservedColumn]
    kept: pa.Table

    @classmethod
    def of(cls, table: pa.Table, keep: Collection[str]) -> "InferredRows":
        """Keep some columns of a parsed table."""
        return cls(observed_columns(table), _only(table, keep))


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Rows parsed with the dtypes of the dataset.

    Attributes:
        kept: the columns to keep.
        missing: first row without a value, by column of integers or truth values.
        n_rows: number of rows.
    """

    kept: pa.Table
    missing: Mapping[str, int]
    n_rows: int

    @classmethod
    def of(cls, table: pa.Table, columns: Sequence[Column], keep: Collection[str]) -> "TypedRows":
        """Keep some columns of a parsed table."""
        values = dict(zip(table.column_names, table.itercolumns()))
        gaps = [c.name for c in columns if c.dtype in ("int64", "bool") and values[c.name].null_count]
        missing = {name: int(np.argmax(values[name].is_null().to_numpy())) for name in gaps}
        return cls(_only(table, keep), missing, len(table))


def require_present(path: str, columns: Sequence[Column], parts: Sequence[TypedRows]) -> None:
    """Raise ``DataError``, naming row and column, for a missing integer or truth value."""
    for column in columns:
        before = 0
        for part in parts:
            if column.name in part.missing:
                row = before + part.missing[column.name] + 1
                raise DataError(path, f"the value is missing, the column is {column.dtype}", row=row, column=column.name)
            before += part.n_rows


def joined_columns(columns: Sequence[Column], names: Collection[str], tables: Sequence[pa.Table]) -> dict[str, pa.Array]:
    """Join columns of all runs. Nulls become NaN in float64 columns and empty text in strings."""
    return {column.name: _joined(column, tables) for column in columns if column.name in names}


def runs_agree(runs: Sequence[Sequence[ObservedColumn]]) -> bool:
    """Test that inference over all rows together would give the same dtypes as inference run by run."""
    for columns in zip(*runs):
        dtypes = {column.dtype for column in columns} - {"nothing"}
        if len(dtypes) > 1 and dtypes != {"int64", "float64"}:
            return False
    return True


def columns_to_reparse(columns: Sequence[Column], names: Collection[str], runs: Sequence[InferredRows]) -> list[Column] | None:
    """The named columns that must be parsed again, since inference gave them another dtype than the dataset's.

    None: all columns must be parsed again, as a cell may be wrong.
    """
    reparsed = []
    for i, column in enumerate(columns):
        observed = {run.columns[i].dtype for run in runs}
        gaps = column.dtype in ("int64", "bool") and any(run.columns[i].has_missing for run in runs)
        if gaps or not observed <= _FITTING.get(column.dtype, observed):
            return None
        # Words for missing numbers may belong to a text, and an integer may be the float -0.
        if column.name in names and {run.kept[column.name].type for run in runs} != {ARROW_TYPES[column.dtype]}:
            reparsed.append(column)
    return reparsed


def _only(table: pa.Table, keep: Collection[str]) -> pa.Table:
    return table.select([i for i, name in enumerate(table.column_names) if name in keep])


def _joined(column: Column, tables: Sequence[pa.Table]) -> pa.Array:
    parts = [chunk for table in tables for chunk in table[column.name].chunks]
    values = pa.chunked_array(parts, type=ARROW_TYPES[column.dtype])
    if values.null_count:
        values = pc.fill_null(values, float("nan") if column.dtype == "float64" else "")
    return values.combine_chunks()
