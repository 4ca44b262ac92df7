"""Deletions: which keys, when and why; and what Postgres forgets when they are purged.

The rows of ``deletion`` and the deleted list that a batch's row names are written in one transaction: they always agree.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import sqlalchemy as sa
from psycopg2 import sql
from sqlalchemy.dialects.postgresql import ARRAY, insert

from modyn_dagster.catalog.tables import batch, deletion, sample
from modyn_dagster.keys import KeyArray

#: Class of the advisory locks by dataset: the letters of "dele".
_LOCK: Final = 0x64656C65
_CHUNK: Final = 50_000


def lock_deletions(conn: sa.Connection, dataset_id: int) -> None:
    """One transaction at a time deletes or purges samples of a dataset; others wait until it ends."""
    conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK, dataset_id)))


def block_deletions(conn: sa.Connection, dataset_id: int) -> None:
    """Keep samples of a dataset from being deleted until the transaction ends; any number may hold at once."""
    conn.execute(sa.select(sa.func.pg_advisory_xact_lock_shared(_LOCK, dataset_id)))


def record_deletions(conn: sa.Connection, dataset_id: int, keys: KeyArray, reason: str | None) -> None:
    """Note deletions, with ``lock_deletions`` held; keys that are deleted already keep their first row."""
    for chunk in _chunks(keys):
        values = sa.select(sa.literal(dataset_id), _rows(chunk), sa.literal(reason, sa.Text))
        statement = insert(deletion).from_select(["dataset_id", "key", "reason"], values)
        conn.execute(statement.on_conflict_do_nothing())


def set_deleted_list(conn: sa.Connection, batch_id: int, *, version: int, checksum: str, n_deleted: int) -> None:
    """Make a version of the deleted list of a batch the one that counts; its file is there already."""
    values = {"deleted_version": version, "deleted_checksum": checksum, "n_deleted": n_deleted}
    conn.execute(sa.update(batch).where(batch.c.id == batch_id).values(values))


def is_deleted(conn: sa.Connection, dataset_id: int, key: int) -> bool:
    """Whether a deletion of this key is committed."""
    where = (deletion.c.dataset_id == dataset_id) & (deletion.c.key == key)
    return conn.execute(sa.select(deletion.c.id).where(where)).one_or_none() is not None


def deletion_stamp(conn: sa.Connection, dataset_id: int) -> int:
    """A number that grows with every deletion; 0 when there was none."""
    statement = sa.select(sa.func.coalesce(sa.func.sum(batch.c.deleted_version), 0)).where(batch.c.dataset_id == dataset_id)
    return int(conn.execute(statement).scalar_one())


def present_in(leaf: sql.Identifier, dataset_id: int, after: int, until: int) -> sql.Composed:
    """For the WHERE clause of a query over a dataset's partition of ``sample``: only keys that are not deleted.

    The same bounds as the query's let Postgres look only at the deletions between them.
    """
    query = (
        " AND NOT EXISTS (SELECT FROM deletion WHERE deletion.dataset_id = {dataset_id} AND deletion.key = {leaf}.key"
        " AND deletion.key > {after} AND deletion.key <= {until})"
    )
    bounds = {"dataset_id": sql.Literal(dataset_id), "after": sql.Literal(after), "until": sql.Literal(until)}
    return sql.SQL(query).format(leaf=leaf, **bounds)


def unpurged_keys(conn: sa.Connection, dataset_id: int, keys: KeyArray) -> KeyArray:
    """Those of some deleted keys whose values are still there, ascending."""
    found = [np.empty(0, np.uint64)]
    for chunk in _chunks(keys):
        where = (deletion.c.dataset_id == dataset_id) & deletion.c.purged_at.is_(None) & _among(deletion.c.key, chunk)
        found.append(np.array(conn.execute(sa.select(deletion.c.key).where(where)).scalars().all(), dtype=np.uint64))
    return np.sort(np.concatenate(found))


def forget_samples(conn: sa.Connection, dataset_id: int, keys: KeyArray) -> None:
    """Empty label, target and attributes of deleted samples and note that they are purged; keys and times stay."""
    for chunk in _chunks(keys):
        mine = (sample.c.dataset_id == dataset_id) & _among(sample.c.key, chunk)
        conn.execute(sa.update(sample).where(mine).values(label=None, target=None, attributes=sa.null()))
        gone = (deletion.c.dataset_id == dataset_id) & _among(deletion.c.key, chunk)
        conn.execute(sa.update(deletion).where(gone).values(purged_at=sa.func.now()))


def _chunks(keys: KeyArray) -> Iterator[KeyArray]:
    for start in range(0, len(keys), _CHUNK):
        yield keys[start : start + _CHUNK]


def _rows(keys: KeyArray) -> sa.FunctionElement[int]:
    """Keys as a set of rows."""
    return sa.func.unnest(sa.literal(keys.tolist(), ARRAY(sa.BigInteger)))


def _among(column: sa.ColumnElement[int], keys: KeyArray) -> sa.ColumnElement[bool]:
    # The bounds let Postgres look only at the part of the table that can hold them.
    return column.between(int(keys.min()), int(keys.max())) & column.in_(sa.select(_rows(keys)))
