"""Ids of samples: unique in a dataset, and looked up many at a time by those who know samples by id."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, insert

from modyn_dagster.catalog.database.mapping import metadata
from modyn_dagster.keys import KeyArray

sample_id: Final = sa.Table(
    "sample_id",
    metadata,
    sa.Column("dataset_id", sa.Integer, sa.ForeignKey("dataset.id"), primary_key=True),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("key", sa.BigInteger, nullable=False),
)

#: Ids of one query.
_CHUNK: Final = 100_000


def keys_of_ids(conn: sa.Connection, dataset_id: int, ids: Sequence[str]) -> tuple[KeyArray, npt.NDArray[np.bool_]]:
    """Keys of samples by their ids.

    Returns keys ``uint64[n]``, 0 where no sample has the id, and a mask ``bool[n]`` of those that one has. One query for each
    100,000 ids; ids may repeat. Ids of several columns have the separator of ``ingestion.formats.ids`` between these.
    """
    keys, found = np.zeros(len(ids), dtype=np.uint64), np.zeros(len(ids), dtype=bool)
    for start in range(0, len(ids), _CHUNK):
        asked = sa.func.unnest(_texts(ids[start : start + _CHUNK])).table_valued("id", with_ordinality="place").render_derived()
        matches = (sample_id.c.dataset_id == dataset_id) & (sample_id.c.id == asked.c.id)
        rows = conn.execute(sa.select(asked.c.place, sample_id.c.key).join_from(asked, sample_id, matches)).all()
        if rows:
            places, values = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
            keys[start + places - 1], found[start + places - 1] = values.astype(np.uint64), True
    return keys, found


def add_sample_ids(conn: sa.Connection, dataset_id: int, ids: Sequence[str], keys: KeyArray) -> tuple[int, int] | None:
    """Record the ids of new samples of a locked dataset.

    Returns None, or for the first sample whose id another one has already its position among ``ids`` and the key of the other.
    """
    for start in range(0, len(ids), _CHUNK):
        part = slice(start, start + _CHUNK)
        rows = (
            sa.func.unnest(_texts(ids[part]), sa.literal(keys[part].tolist(), ARRAY(sa.BigInteger)))
            .table_valued("id", "key")
            .render_derived()
        )
        values = sa.select(sa.literal(dataset_id), rows.c.id, rows.c.key)
        added = conn.execute(insert(sample_id).from_select(["dataset_id", "id", "key"], values).on_conflict_do_nothing())
        if added.rowcount < len(ids[part]):
            there, _ = keys_of_ids(conn, dataset_id, ids[part])
            first = int(np.argmax(there != keys[part]))
            return start + first, int(there[first])
    return None


def forget_ids(conn: sa.Connection, dataset_id: int, keys: KeyArray) -> list[str]:
    """Remove the ids of samples (``uint64[n]``); returns them."""
    removed = list[str]()
    for start in range(0, len(keys), _CHUNK):
        some = sa.literal(keys[start : start + _CHUNK].tolist(), ARRAY(sa.BigInteger))
        chosen = (sample_id.c.dataset_id == dataset_id) & (sample_id.c.key == sa.any_(some))
        removed += conn.scalars(sa.delete(sample_id).where(chosen).returning(sample_id.c.id))
    return removed


def _texts(ids: Sequence[str]) -> sa.BindParameter[list[str]]:
    return sa.literal(list(ids), ARRAY(sa.Text))
