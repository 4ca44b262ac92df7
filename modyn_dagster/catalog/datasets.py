"""Datasets: their row, the partition of ``sample`` that holds their keys, and what may no longer change."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.tables import dataset
from modyn_dagster.errors import UnknownName


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the dataset's samples; ``dtype`` is a ``ColumnType``, for fixed rows a NumPy dtype string."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """A row of ``dataset``.

    Attributes:
        spec: as stored, without ``storage_options`` (they may hold secrets).
        columns: fixed by the first ingested batch; None before it, empty where samples are files.
        class_names: in the order of their index; empty where labels are integers or absent.
    """

    id: int
    name: str
    spec: Mapping[str, Any]
    columns: tuple[Column, ...] | None
    class_names: tuple[str, ...]
    next_ordinal: int


def get_dataset(conn: sa.Connection, name: str) -> DatasetRow:
    """A dataset by name; ``UnknownName`` lists the known ones."""
    found = _find(conn, name)
    if found is None:
        known = conn.execute(sa.select(dataset.c.name).order_by(dataset.c.name)).scalars().all()
        raise UnknownName("dataset", name, known)
    return found


def lock_dataset(conn: sa.Connection, dataset_id: int) -> DatasetRow:
    """The row as it is now, locked until the transaction ends: one writer of ordinals, columns and class names."""
    # FOR NO KEY UPDATE: rows that only refer to the dataset can still be written by others.
    statement = sa.select(dataset).where(dataset.c.id == dataset_id).with_for_update(key_share=True)
    return _row(conn.execute(statement).one())


def set_columns(conn: sa.Connection, dataset_id: int, columns: Sequence[Column]) -> None:
    """Fix the columns of a locked dataset."""
    values = [asdict(column) for column in columns]
    conn.execute(sa.update(dataset).where(dataset.c.id == dataset_id).values(columns=values))


def append_class_names(conn: sa.Connection, row: DatasetRow, names: Sequence[str]) -> tuple[str, ...]:
    """Give new classes the next indices of a locked dataset; returns all names in the order of their index."""
    all_names = (*row.class_names, *(name for name in names if name not in row.class_names))
    conn.execute(sa.update(dataset).where(dataset.c.id == row.id).values(class_names=list(all_names)))
    return all_names


def partition_of(dataset_id: int) -> str:
    """Name of the partition of ``sample`` that holds a dataset."""
    return f"sample_{dataset_id:d}"


def _find(conn: sa.Connection, name: str) -> DatasetRow | None:
    row = conn.execute(sa.select(dataset).where(dataset.c.name == name)).one_or_none()
    return None if row is None else _row(row)


def _row(row: sa.Row[Any]) -> DatasetRow:
    columns = None if row.columns is None else tuple(Column(**column) for column in row.columns)
    return DatasetRow(row.id, row.name, row.spec, columns, tuple(row.class_names), row.next_ordinal)
