"""Datasets: their row, their class names, and the partitioned table ``sample`` that holds their samples."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from modyn_dagster.catalog.database.mapping import TIME, Default, Id, Mark, created_column, metadata, table
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
        class_names: in the order of their index, append-only; empty where labels are integers or absent.
        next_ordinal: ordinal of the next batch.
        layouts: columns of the rows in each layout that batches have, in the order of the files; append-only. Empty as long as
            all batches have all columns.
        next_arrival: position of the next batch of samples or labels in the one sequence that both share; stays 0 where labels
            arrive with their samples.
    """

    id: Id
    name: Annotated[str, Mark.UNIQUE]
    spec: Mapping[str, Any]
    columns: tuple[Column, ...] | None
    class_names: Annotated[tuple[str, ...], Default("[]")]
    next_ordinal: Annotated[int, Default("0")]
    layouts: Annotated[tuple[tuple[str, ...], ...], Default("[]"), Mark.APPENDED] = ()
    next_arrival: Annotated[int, Default("0"), Mark.APPENDED] = 0


dataset: Final = table("dataset", DatasetRow, created_column())

# One partition per dataset is created when the dataset is registered.
sample: Final = sa.Table(
    "sample",
    metadata,
    sa.Column("dataset_id", sa.Integer, nullable=False),
    sa.Column("key", sa.BigInteger, nullable=False),
    sa.Column("time", TIME, nullable=False),
    sa.Column("label", sa.BigInteger),
    sa.Column("target", sa.Double),
    sa.Column("attributes", JSONB),
    postgresql_partition_by="LIST (dataset_id)",
)


def arrive_later(spec: Mapping[str, Any]) -> bool:
    """Tell whether labels arrive later than their samples, by a stored spec."""
    return (spec["label"] or {}).get("arrives") == "later"


def find_dataset(conn: sa.Connection, name: str) -> DatasetRow | None:
    """A dataset by name; None when there is none."""
    row = conn.execute(sa.select(dataset).where(dataset.c.name == name)).one_or_none()
    return None if row is None else _dataset_row(row)


def get_dataset(conn: sa.Connection, name: str) -> DatasetRow:
    """A dataset by name; ``UnknownName`` lists the existing ones."""
    row = find_dataset(conn, name)
    if row is None:
        names = conn.execute(sa.select(dataset.c.name).order_by(dataset.c.name)).scalars().all()
        raise UnknownName("dataset", name, names)
    return row


def list_datasets(conn: sa.Connection) -> list[DatasetRow]:
    """All datasets, by name."""
    return [_dataset_row(row) for row in conn.execute(sa.select(dataset).order_by(dataset.c.name))]


def lock_dataset(conn: sa.Connection, dataset_id: int) -> DatasetRow:
    """Read a dataset and lock it until the transaction ends: one writer of ordinals, columns and class names."""
    # FOR NO KEY UPDATE: rows that only refer to the dataset can still be written by others.
    statement = sa.select(dataset).where(dataset.c.id == dataset_id).with_for_update(key_share=True)
    return _dataset_row(conn.execute(statement).one())


def set_columns(conn: sa.Connection, dataset_id: int, columns: Sequence[Column]) -> None:
    """Fix the columns of a locked dataset."""
    values = [asdict(column) for column in columns]
    conn.execute(sa.update(dataset).where(dataset.c.id == dataset_id).values(columns=values))


def append_class_names(conn: sa.Connection, row: DatasetRow, names: Sequence[str]) -> tuple[str, ...]:
    """Give new classes the next indices of a locked dataset; returns all names in the order of their index."""
    all_names = tuple(dict.fromkeys((*row.class_names, *names)))
    conn.execute(sa.update(dataset).where(dataset.c.id == row.id).values(class_names=list(all_names)))
    return all_names


def partition_of(dataset_id: int) -> str:
    """Name of the partition of ``sample`` that holds a dataset."""
    return f"sample_{dataset_id:d}"


def sample_bytes(conn: sa.Connection) -> dict[str, int]:
    """Bytes of the samples of each dataset in Postgres, with their indexes, by the name of the dataset."""
    leaf = sa.func.to_regclass(sa.func.concat("sample_", dataset.c.id))
    statement = sa.select(dataset.c.name, sa.func.coalesce(sa.func.pg_total_relation_size(leaf), 0)).order_by(dataset.c.name)
    return {name: int(n_bytes) for name, n_bytes in conn.execute(statement).tuples()}


def _dataset_row(row: sa.Row[Any]) -> DatasetRow:
    columns = None if row.columns is None else tuple(Column(**column) for column in row.columns)
    layouts = tuple(tuple(names) for names in row.layouts)
    return DatasetRow(row.id, row.name, row.spec, columns, tuple(row.class_names), row.next_ordinal, layouts, row.next_arrival)
