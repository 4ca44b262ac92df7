"""Deleted samples: their keys, the locks of deletion, and the removal of their values from Postgres.

The rows of ``deletion`` and the deleted list that a batch's row names are written in one transaction: they always agree.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

import numpy as np
import sqlalchemy as sa
from psycopg2 import sql
from sqlalchemy.dialects.postgresql import ARRAY, insert

from modyn_dagster.catalog.batches import batch
from modyn_dagster.catalog.database.mapping import BigInt, References, created_column, table
from modyn_dagster.catalog.datasets import sample
from modyn_dagster.keys import KeyArray

#: Class of the advisory locks by dataset: the letters of "dele".
_LOCK: Final = 0x64656C65
_CHUNK: Final = 50_000


@dataclass(frozen=True, slots=True)
class DeletionRow:
    """A row of ``deletion``.

    Attributes:
        purged_at: when the sample's bytes, label, target and attributes were overwritten.
    """

    dataset_id: Annotated[int, References("dataset.id")]
    key: BigInt
    reason: str | None
    purged_at: datetime | None


deletion: Final = table("deletion", DeletionRow, created_column(), sa.UniqueConstraint("dataset_id", "key"))


def lock_deletions(conn: sa.Connection, dataset_id: int) -> None:
    """Take the exclusive lock on deletions of a dataset until the transaction ends: one deletes or purges at a time."""
    conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK, dataset_id)))


def block_deletions(conn: sa.Connection, dataset_id: int) -> None:
    """Take the shared lock on deletions of a dataset: none begins until the transactions that hold it end."""
    conn.execute(sa.select(sa.func.pg_advisory_xact_lock_shared(_LOCK, dataset_id)))


def record_deletions(conn: sa.Connection, dataset_id: int, keys: KeyArray, reason: str | None) -> None:
    """Record deletions, with ``lock_deletions`` held; keys that are deleted already keep their first row."""
    for chunk in _chunks(keys):
        values = sa.select(sa.literal(dataset_id), _unnested(chunk), sa.literal(reason, sa.Text))
        statement = insert(deletion).from_select(["dataset_id", "key", "reason"], values)
        conn.execute(statement.on_conflict_do_nothing())


def set_deleted_list(conn: sa.Connection, batch_id: int, *, version: int, checksum: str, n_deleted: int) -> None:
    """Switch a batch to a version of its deleted list; the file exists already."""
    values = {"deleted_version": version, "deleted_checksum": checksum, "n_deleted": n_deleted}
    conn.execute(sa.update(batch).where(batch.c.id == batch_id).values(values))


def is_deleted(conn: sa.Connection, dataset_id: int, key: int) -> bool:
    """Tell whether a deletion of this key is committed."""
    where = (deletion.c.dataset_id == dataset_id) & (deletion.c.key == key)
    return conn.execute(sa.select(deletion.c.id).where(where)).one_or_none() is not None


def deleted_keys(conn: sa.Connection, dataset_id: int, first: int, last: int) -> KeyArray:
    """Deleted keys between two keys, both included, ascending."""
    where = (deletion.c.dataset_id == dataset_id) & deletion.c.key.between(first, last)
    return np.array(conn.execute(sa.select(deletion.c.key).where(where).order_by(deletion.c.key)).scalars().all(), np.uint64)


def deleted_in_order(conn: sa.Connection, dataset_id: int, first: int, last: int) -> KeyArray:
    """Deleted keys between two keys, both included, those of the earliest deletion first."""
    where = (deletion.c.dataset_id == dataset_id) & deletion.c.key.between(first, last)
    statement = sa.select(deletion.c.key).where(where).order_by(deletion.c.created_at, deletion.c.key)
    return np.array(conn.execute(statement).scalars().all(), np.uint64)


def deletion_stamp(conn: sa.Connection, dataset_id: int, first: int = 0, last: int | None = None) -> int:
    """Version of the deletions in a dataset, or in its batches with the ordinals ``first .. last``.

    It is 0 without any, and grows with every further one.
    """
    where = (batch.c.dataset_id == dataset_id) & (batch.c.ordinal >= first)
    if last is not None:
        where &= batch.c.ordinal <= last
    statement = sa.select(sa.func.coalesce(sa.func.sum(batch.c.deleted_version), 0)).where(where)
    return int(conn.execute(statement).scalar_one())


def present_in(leaf: sql.Identifier, dataset_id: int, after: int, until: int) -> sql.Composed:
    """Condition, in a query over a dataset's partition of ``sample``, that a key is not deleted.

    With the same bounds as the query's, Postgres looks only at the deletions between them.
    """
    query = (
        " AND NOT EXISTS (SELECT FROM deletion WHERE deletion.dataset_id = {dataset_id} AND deletion.key = {leaf}.key"
        " AND deletion.key > {after} AND deletion.key <= {until})"
    )
    bounds = {"dataset_id": sql.Literal(dataset_id), "after": sql.Literal(after), "until": sql.Literal(until)}
    return sql.SQL(query).format(leaf=leaf, **bounds)


def unpurged_keys(conn: sa.Connection, dataset_id: int, keys: KeyArray) -> KeyArray:
    """Deleted keys among ``keys`` whose values are not purged yet, ascending."""
    unpurged = [np.empty(0, np.uint64)]
    for chunk in _chunks(keys):
        where = (deletion.c.dataset_id == dataset_id) & deletion.c.purged_at.is_(None) & _in_keys(deletion.c.key, chunk)
        unpurged.append(np.array(conn.execute(sa.select(deletion.c.key).where(where)).scalars().all(), dtype=np.uint64))
    return np.sort(np.concatenate(unpurged))


def forget_samples(conn: sa.Connection, dataset_id: int, keys: KeyArray) -> None:
    """Empty label, target and attributes of deleted samples and record the purge; keys and times stay."""
    for chunk in _chunks(keys):
        samples = (sample.c.dataset_id == dataset_id) & _in_keys(sample.c.key, chunk)
        conn.execute(sa.update(sample).where(samples).values(label=None, target=None, attributes=sa.null()))
        deletions = (deletion.c.dataset_id == dataset_id) & _in_keys(deletion.c.key, chunk)
        conn.execute(sa.update(deletion).where(deletions).values(purged_at=sa.func.now()))


def _chunks(keys: KeyArray) -> Iterator[KeyArray]:
    for start in range(0, len(keys), _CHUNK):
        yield keys[start : start + _CHUNK]


def _unnested(keys: KeyArray) -> sa.FunctionElement[int]:
    """Keys as a set of rows."""
    return sa.func.unnest(sa.literal(keys.tolist(), ARRAY(sa.BigInteger)))


def _in_keys(column: sa.ColumnElement[int], keys: KeyArray) -> sa.ColumnElement[bool]:
    # The bounds let Postgres look only at the part of the table that can hold them.
    return column.between(int(keys.min()), int(keys.max())) & column.in_(sa.select(_unnested(keys)))
