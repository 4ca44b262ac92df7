"""Runs of rows as Arrow parsed them: what they show, what is missing, and the columns that are kept of all of them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.arrow_rows import ARROW_TYPES
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.formats.columns import Found, found_columns

#: What inference may see in a column of a dtype without any cell being wrong.
_FITTING: Final = {"float64": {"float64", "int64", "nothing"}, "int64": {"int64"}, "bool": {"bool"}}


@dataclass(frozen=True, slots=True)
class Inferred:
    """A run of rows parsed without dtypes: all columns as they look, and the cells of those to keep."""

    found: list[Found]
    kept: pa.Table

    @classmethod
    def of(cls, table: pa.Table, keep: Collection[str]) -> "Inferred":
        """Everything else of the table can go."""
        return cls(found_columns(table), _only(table, keep))


@dataclass(frozen=True, slots=True)
class Typed:
    """A run of rows parsed with the dataset's dtypes.

    Attributes:
        kept: the cells to keep.
        missing: by column of integers or truth values, the first row that lacks one.
    """

    kept: pa.Table
    missing: Mapping[str, int]
    n_rows: int

    @classmethod
    def of(cls, table: pa.Table, columns: Sequence[Column], keep: Collection[str]) -> "Typed":
        """Everything else of the table can go."""
        gaps = [c.name for c in columns if c.dtype in ("int64", "bool") and table[c.name].null_count]
        missing = {name: int(np.argmax(table[name].is_null().to_numpy())) for name in gaps}
        return cls(_only(table, keep), missing, len(table))


def require_present(path: str, columns: Sequence[Column], parts: Sequence[Typed]) -> None:
    """Raise ``DataError`` naming row and column where an integer or truth value is missing."""
    for column in columns:
        before = 0
        for part in parts:
            if column.name in part.missing:
                row = before + part.missing[column.name] + 1
                raise DataError(path, f"the value is missing, the column is {column.dtype}", row=row, column=column.name)
            before += part.n_rows


def joined_columns(columns: Sequence[Column], names: Collection[str], tables: Sequence[pa.Table]) -> dict[str, pa.Array]:
    """These columns of all runs, without nulls: NaN for missing float64, empty text for missing strings."""
    return {column.name: _joined(column, tables) for column in columns if column.name in names}


def agree(runs: Sequence[Sequence[Found]]) -> bool:
    """Whether the runs of a file show columns that would look the same if all rows had been parsed together."""
    for columns in zip(*runs):
        seen = {column.dtype for column in columns} - {"nothing"}
        if len(seen) > 1 and seen != {"int64", "float64"}:
            return False
    return True


def columns_to_reparse(columns: Sequence[Column], wanted: Collection[str], runs: Sequence[Inferred]) -> list[Column] | None:
    """Which wanted columns have to be parsed with their dtypes, since inference made something else of their cells.

    None: all columns have to, as a cell may be wrong.
    """
    again = []
    for i, column in enumerate(columns):
        shown = {run.found[i].dtype for run in runs}
        gaps = column.dtype in ("int64", "bool") and any(run.found[i].has_missing for run in runs)
        if gaps or not shown <= _FITTING.get(column.dtype, shown):
            return None
        # Numbers that are missing may be words of a text, and an integer may be the float -0.
        if column.name in wanted and {run.kept[column.name].type for run in runs} != {ARROW_TYPES[column.dtype]}:
            again.append(column)
    return again


def _only(table: pa.Table, keep: Collection[str]) -> pa.Table:
    return table.select([name for name in table.column_names if name in keep])


def _joined(column: Column, tables: Sequence[pa.Table]) -> pa.Array:
    parts = [chunk for table in tables for chunk in table[column.name].chunks]
    values = pa.chunked_array(parts, type=ARROW_TYPES[column.dtype])
    if values.null_count:
        values = pc.fill_null(values, float("nan") if column.dtype == "float64" else "")
    return values.combine_chunks()
