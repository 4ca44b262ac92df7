"""Layouts of rows: columns that batches lack, by the rules ``absent`` of the dataset's spec, and the lists of those they have.

The columns of a dataset are only ever appended to. A batch names its layout by a number into an append-only list, so a batch
that was read before the dataset was widened, and is committed afterwards, still names the right one.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.datasets import Column, DatasetRow, dataset
from modyn_dagster.errors import CatalogError, ConfigError
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.formats import AbsentRule, FilesFormat, FixedRowsFormat, ParquetFormat


def field_code(dtype: np.dtype[Any]) -> str:
    """Dtype of a field of fixed rows as text.

    >>> field_code(np.dtype(("<f4", (3,))))
    '(3,)<f4'
    """
    base, shape = dtype.subdtype if dtype.subdtype is not None else (dtype, ())
    return f"{shape}{base.str}" if shape else base.str


def declared_dtype(spec: DatasetSpec, name: str) -> str | None:
    """Dtype that the spec gives to a column with a rule; None where files or the fill decide."""
    if isinstance(spec.format, FixedRowsFormat):
        return field_code(np.dtype([(name, dict(spec.format.dtype)[name])])[0])
    pinned = None if isinstance(spec.format, (ParquetFormat, FilesFormat)) else spec.format.columns.get(name)
    return pinned or spec.absent[name].dtype


def dtype_of_fill(rule: AbsentRule) -> str:
    """Dtype of a column that no file has had yet, and that the spec does not pin: any number may come."""
    if isinstance(rule.fill, bool):
        return "bool"
    return "string" if isinstance(rule.fill, str) and rule.fill != "nan" else "float64"


def widened(spec: DatasetSpec, columns: Sequence[Column]) -> tuple[Column, ...]:
    """Columns of a dataset with those that have a rule, in the order of the rules, behind the others.

    Raises ``ConfigError`` for a rule whose value is none of its column.
    """
    names = {column.name for column in columns}
    new = [
        Column(name, declared_dtype(spec, name) or dtype_of_fill(rule)) for name, rule in spec.absent.items() if name not in names
    ]
    for column in columns:
        if column.name in spec.absent and not isinstance(spec.format, FixedRowsFormat):
            _require_value(spec, column)
    return (*columns, *new)


def _require_value(spec: DatasetSpec, column: Column) -> None:
    rule, field = spec.absent[column.name], f"absent.{column.name}"
    if rule.dtype not in (None, column.dtype):
        raise ConfigError(f"dataset {spec.name}", f"{field}.dtype", rule.dtype, f"the column is {column.dtype}; remove the field")
    try:
        rule.value_as(column.dtype)
    except ValueError as error:
        raise ConfigError(f"dataset {spec.name}", f"{field}.fill", rule.fill, str(error)) from error


def layout_columns(row: DatasetRow, number: int) -> tuple[Column, ...]:
    """Columns of the rows of the batches with a layout, in the order of the files.

    Raises ``CatalogError`` for a number that the row does not have: it was read before the dataset got that layout.
    """
    columns = row.columns or ()
    if number == 0 and not row.layouts:
        return columns
    if number >= len(row.layouts):
        raise CatalogError(
            f"dataset {row.name!r} as read has {len(row.layouts) or 1} layouts of rows, a batch has number {number}, from 0: "
            "its layout is newer than that; read the dataset again, after its batches"
        )
    by_name = {column.name: column for column in columns}
    return tuple(by_name[name] for name in row.layouts[number])


def layout_number(row: DatasetRow, names: Sequence[str]) -> int | None:
    """Number of a layout; None for one that no batch has yet."""
    layouts = row.layouts or (_all_names(row),)
    return layouts.index(tuple(names)) if tuple(names) in layouts else None


def append_layout(conn: sa.Connection, row: DatasetRow, names: Sequence[str]) -> DatasetRow:
    """Give a new layout the next number in a locked dataset; returns the dataset."""
    row = replace(row, layouts=(*(row.layouts or (_all_names(row),)), tuple(names)))
    _write(conn, row)
    return row


def widen(conn: sa.Connection, row: DatasetRow, spec: DatasetSpec) -> DatasetRow:
    """Append the columns that the rules of a spec name to a locked dataset whose batches have no such column."""
    columns = widened(spec, row.columns or ())
    if columns == row.columns:
        return row
    row = replace(row, columns=columns, layouts=row.layouts or (_all_names(row),))
    _write(conn, row)
    return row


def _all_names(row: DatasetRow) -> tuple[str, ...]:
    return tuple(column.name for column in row.columns or ())


def _write(conn: sa.Connection, row: DatasetRow) -> None:
    values = {"columns": [asdict(column) for column in row.columns or ()], "layouts": [list(names) for names in row.layouts]}
    conn.execute(sa.update(dataset).where(dataset.c.id == row.id).values(values))
