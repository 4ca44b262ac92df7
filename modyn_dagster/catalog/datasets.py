"""Datasets: their row, the partition of ``sample`` that holds their keys, and what may no longer change."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import sqlalchemy as sa
from psycopg2 import sql
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.tables import batch, dataset
from modyn_dagster.errors import ConfigError, UnknownName
from modyn_dagster.spec.dataset import DatasetSpec

#: What decides keys, labels and sides: fixed once a batch is ingested.
FROZEN_FIELDS: Final = ("format", "time", "label", "attributes", "split")


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


def ensure_dataset(conn: sa.Connection, spec: DatasetSpec) -> DatasetRow:
    """The dataset's row, created with its partition of ``sample``, or brought up to date with the spec.

    Raises ``ConfigError`` naming the field when a spec changes what ingested data were read by.
    """
    found = _find(conn, spec.name)
    if found is None:
        found = _create(conn, spec)
    if found.spec == _stored(spec):
        return found
    return _update(conn, lock_dataset(conn, found.id), spec)


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


def _create(conn: sa.Connection, spec: DatasetSpec) -> DatasetRow:
    values = {"name": spec.name, "spec": _stored(spec), "class_names": _declared_classes(spec)}
    statement = insert(dataset).values(**values).on_conflict_do_nothing(index_elements=["name"]).returning(dataset.c.id)
    created: int | None = conn.execute(statement).scalar_one_or_none()
    # None: another process created it, and its transaction has ended by now.
    if created is not None:
        _create_partition(conn, created)
    return get_dataset(conn, spec.name)


def _create_partition(conn: sa.Connection, dataset_id: int) -> None:
    """Attached rather than created in place: ATTACH lets readers and writers of other datasets go on."""
    number = sql.Literal(dataset_id)
    leaf = sql.Identifier(partition_of(dataset_id))
    for statement in (
        "CREATE TABLE {leaf} (LIKE sample INCLUDING ALL)",
        # COPY goes straight into the leaf and leaves the dataset out.
        "ALTER TABLE {leaf} ALTER COLUMN dataset_id SET DEFAULT {number}",
        "CREATE INDEX ON {leaf} USING brin (key) WITH (autosummarize = on)",
        "ALTER TABLE sample ATTACH PARTITION {leaf} FOR VALUES IN ({number})",
    ):
        composed = sql.SQL(statement).format(leaf=leaf, number=number)
        conn.exec_driver_sql(composed.as_string(conn.connection.driver_connection))


def _update(conn: sa.Connection, row: DatasetRow, spec: DatasetSpec) -> DatasetRow:
    wanted = _stored(spec)
    values: dict[str, Any] = {"spec": wanted}
    ingested = sa.select(batch.c.id).where(batch.c.dataset_id == row.id, batch.c.state == "ingested").limit(1)
    if conn.execute(ingested).one_or_none() is not None:
        _refuse_frozen_changes(row, wanted)
    else:
        values |= {"columns": sa.null(), "class_names": _declared_classes(spec)}
    conn.execute(sa.update(dataset).where(dataset.c.id == row.id).values(values))
    return get_dataset(conn, row.name)


def _refuse_frozen_changes(row: DatasetRow, wanted: Mapping[str, Any]) -> None:
    # Parsed again, so that a field this version added with a default is no difference.
    before = _stored(DatasetSpec.model_validate(row.spec))
    for field in FROZEN_FIELDS:
        if _decisive(before[field]) != _decisive(wanted[field]):
            rule = f"cannot change once data are ingested, it was {before[field]!r}; restore it, or name a new dataset"
            raise ConfigError(f"dataset {row.name}", field, wanted[field], rule)
    if before["batches"]["kind"] != wanted["batches"]["kind"]:
        rule = f"cannot change once data are ingested, it was {before['batches']['kind']!r}; name a new dataset"
        raise ConfigError(f"dataset {row.name}", "batches.kind", wanted["batches"]["kind"], rule)


def _decisive(field: Any) -> Any:
    """A field without what only says where bytes are kept."""
    return {name: value for name, value in field.items() if name != "packed_bytes"} if isinstance(field, dict) else field


def _stored(spec: DatasetSpec) -> dict[str, Any]:
    return spec.model_dump(mode="json", by_alias=True, exclude={"storage_options"})


def _declared_classes(spec: DatasetSpec) -> list[str]:
    return list(spec.label.classes or []) if spec.label is not None else []
