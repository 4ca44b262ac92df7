"""Labels whose id names no sample yet: they wait, and are known once the batch of their sample is ingested."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated, Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from modyn_dagster.catalog.database.mapping import BigInt, References, column_values, list_rows, table
from modyn_dagster.catalog.labels.label_batches import label_batch
from modyn_dagster.catalog.labels.label_files import label_file

#: Rows of one statement.
_CHUNK: Final = 20_000


@dataclass(frozen=True, slots=True)
class WaitingLabel:
    """A row of ``waiting_label``.

    Attributes:
        sample_id: of a sample that no ingested batch has.
        arrival: of its label batch.
        name, label, target: the value: the name of a class, which has its number once the label is known, or an integer class,
            or a regression target.
        digest: of the row, as a signed number.
    """

    dataset_id: Annotated[int, References("dataset.id")]
    sample_id: str
    label_batch_id: Annotated[int, References("label_batch.id")]
    arrival: int
    known_at: datetime
    name: str | None
    label: BigInt | None
    target: float | None
    digest: BigInt


waiting_label: Final = table("waiting_label", WaitingLabel, sa.Index("ix_waiting_label_dataset_id", "dataset_id", "sample_id"))


@dataclass(frozen=True, slots=True)
class WaitingId:
    """An id that waits: number of its labels, the batch that named it first, and the times at which they were known."""

    sample_id: str
    n_labels: int
    partition_key: str
    first_known: datetime
    last_known: datetime


def add_waiting(conn: sa.Connection, rows: Sequence[WaitingLabel]) -> None:
    """Let labels wait for their samples, in the transaction of their label batch, with the dataset locked."""
    for start in range(0, len(rows), _CHUNK):
        conn.execute(sa.insert(waiting_label), [column_values(row) for row in rows[start : start + _CHUNK]])


def take_waiting(conn: sa.Connection, dataset_id: int, ids: Sequence[str]) -> list[WaitingLabel]:
    """Remove and return the labels that wait for some ids, in the transaction that ingests their samples, under its lock."""
    if conn.scalar(sa.select(waiting_label.c.id).where(waiting_label.c.dataset_id == dataset_id).limit(1)) is None:
        return []
    asked = sa.select(sa.func.unnest(sa.literal(list(ids), ARRAY(sa.Text))))
    where = (waiting_label.c.dataset_id == dataset_id) & waiting_label.c.sample_id.in_(asked)
    columns = [waiting_label.c[field.name] for field in fields(WaitingLabel)]
    return list_rows(conn, WaitingLabel, sa.delete(waiting_label).where(where).returning(*columns))


def waiting_ids(conn: sa.Connection, dataset_id: int, most: int | None = None) -> list[WaitingId]:
    """The ids that wait, the longest waiting first; at most ``most`` of them."""
    row = waiting_label.c
    counts: Any = sa.func.count()
    statement = (
        sa.select(
            row.sample_id,
            counts.label("n_labels"),
            sa.func.min(label_batch.c.partition_key).label("partition_key"),
            sa.func.min(row.known_at).label("first_known"),
            sa.func.max(row.known_at).label("last_known"),
        )
        .join(label_batch, label_batch.c.id == row.label_batch_id)
        .where(row.dataset_id == dataset_id)
        .group_by(row.sample_id)
        .order_by(sa.func.min(row.known_at), row.sample_id)
    )
    return list_rows(conn, WaitingId, statement.limit(most))


def count_waiting(conn: sa.Connection, dataset_id: int) -> int:
    """Number of ids that wait."""
    ids = sa.func.count(waiting_label.c.sample_id.distinct())
    return int(conn.execute(sa.select(ids).where(waiting_label.c.dataset_id == dataset_id)).scalar_one())


def has_labels(conn: sa.Connection, dataset_id: int) -> bool:
    """Tell whether a dataset whose labels arrive later has any, known or waiting; without class names all classes are numbers."""
    known = sa.exists().where(label_file.c.dataset_id == dataset_id)
    waits = sa.exists().where(waiting_label.c.dataset_id == dataset_id)
    return bool(conn.execute(sa.select(known | waits)).scalar_one())
