"""Deletion requests: one row each, with the document of its plan and execution. A step is taken by compare-and-set."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import sqlalchemy as sa

from modyn_dagster.catalog.database.mapping import Created, Default, Id, References, find_row, list_rows, table
from modyn_dagster.catalog.removal.packed_keys import pack_keys
from modyn_dagster.errors import StaleRun, UnknownName
from modyn_dagster.keys import KeyArray

#: States in the order of execution.
RequestState = Literal["deleting", "making", "showing", "finished"]


@dataclass(frozen=True, slots=True)
class DeletionRequestRow:
    """A row of ``deletion_request``.

    Attributes:
        state: ``deleting`` samples, ``making`` training sets and models, ``showing`` it in MLflow, ``finished``.
        epoch: grows with every step; compare-and-set compares it.
        keys: of the samples, as ``pack_keys`` packs them: no limit of JSON in Postgres applies to their number.
        document: JSON of the document.
    """

    id: Id
    dataset_id: Annotated[int, References("dataset.id")]
    state: Annotated[RequestState, sa.Text(), Default("deleting")]
    epoch: Annotated[int, Default("0")]
    keys: Annotated[bytes, sa.LargeBinary()]
    document: Mapping[str, Any]
    created_at: Created
    finished_at: datetime | None


deletion_request: Final = table(
    "deletion_request",
    DeletionRequestRow,
    sa.CheckConstraint("state in ('deleting', 'making', 'showing', 'finished')", name="state"),
    sa.Index("ix_deletion_request_dataset_id", "dataset_id"),
)


def insert_request(conn: sa.Connection, dataset_id: int, keys: KeyArray, document: Mapping[str, Any]) -> DeletionRequestRow:
    """Store a request for ascending keys (``uint64[n]``) in its first state."""
    values = {"dataset_id": dataset_id, "keys": pack_keys(keys), "document": dict(document)}
    statement = sa.insert(deletion_request).values(values).returning(deletion_request.c.id)
    return get_request(conn, int(conn.execute(statement).scalar_one()))


def get_request(conn: sa.Connection, request_id: int) -> DeletionRequestRow:
    """Read a request by id. Raises ``UnknownName``."""
    row = find_row(conn, DeletionRequestRow, sa.select(deletion_request).where(deletion_request.c.id == request_id))
    if row is None:
        raise UnknownName("deletion request", request_id)
    return row


def list_requests(conn: sa.Connection, dataset_id: int) -> list[DeletionRequestRow]:
    """Requests of a dataset, in the order they were made."""
    where = deletion_request.c.dataset_id == dataset_id
    return list_rows(conn, DeletionRequestRow, sa.select(deletion_request).where(where).order_by(deletion_request.c.id))


def move_request(
    conn: sa.Connection, row: DeletionRequestRow, state: RequestState, document: Mapping[str, Any]
) -> DeletionRequestRow:
    """Take a step of a request. Raises ``StaleRun`` when another process took one since ``row`` was read."""
    columns = deletion_request.c
    where = (columns.id == row.id) & (columns.state == row.state) & (columns.epoch == row.epoch)
    values: dict[str, Any] = {"state": state, "epoch": row.epoch + 1, "document": dict(document)}
    if state == "finished":
        values["finished_at"] = sa.func.now()
    statement = sa.update(deletion_request).where(where).values(values).returning(deletion_request)
    moved = find_row(conn, DeletionRequestRow, statement)
    if moved is None:
        raise StaleRun(f"deletion request {row.id}")
    return moved
