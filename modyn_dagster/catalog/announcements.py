"""Batches that are registered: each gets the next ordinal of its dataset, in announcement order, and a partition key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.batches import SEEN, BatchRow
from modyn_dagster.catalog.datasets import lock_dataset
from modyn_dagster.catalog.rows import as_row
from modyn_dagster.catalog.tables import batch, dataset
from modyn_dagster.errors import CatalogError
from modyn_dagster.keys import MAX_ORDINAL


@dataclass(frozen=True, slots=True)
class Announcement:
    """A batch that can be registered.

    Attributes:
        partition_key: its wish; a key that is taken gets a number.
        source: what to ingest, JSON with at least ``paths``: the files, the directory or the manifest it is known by.
    """

    partition_key: str
    source: Mapping[str, Any]


def register(conn: sa.Connection, dataset_id: int, announcements: Sequence[Announcement]) -> list[BatchRow]:
    """Give batches the next ordinals, in the order announced; those with a path that is known already are left out."""
    row = lock_dataset(conn, dataset_id)
    known = known_paths(conn, dataset_id)
    fresh = [item for item in announcements if not known.intersection(item.source["paths"])]
    return _insert(conn, dataset_id, row.next_ordinal, fresh)


def register_again(conn: sa.Connection, failed: BatchRow) -> BatchRow | None:
    """Deliver a failed batch again at the end of the stream, under the key ``<key>~2``; None if that is done already."""
    row = lock_dataset(conn, failed.dataset_id)
    state = conn.execute(sa.select(batch.c.state, batch.c.repaired_by).where(batch.c.id == failed.id)).one()
    if state.state != "failed" or state.repaired_by is not None:
        return None
    source = {name: value for name, value in failed.source.items() if name != SEEN}
    [again] = _insert(conn, failed.dataset_id, row.next_ordinal, [Announcement(source["key"], source)])
    conn.execute(sa.update(batch).where(batch.c.id == failed.id).values(repaired_by=again.id))
    return again


def known_paths(conn: sa.Connection, dataset_id: int) -> set[str]:
    """Every path a batch of the dataset was announced by: the same path again is nothing new."""
    paths = sa.func.jsonb_array_elements_text(batch.c.source["paths"])
    return set(conn.execute(sa.select(paths).where(batch.c.dataset_id == dataset_id)).scalars())


def _insert(conn: sa.Connection, dataset_id: int, first: int, items: Sequence[Announcement]) -> list[BatchRow]:
    if first + len(items) > MAX_ORDINAL:
        raise CatalogError(
            f"dataset {dataset_id} would pass batch ordinal {MAX_ORDINAL}; register larger batches in a new dataset"
        )
    taken = set(conn.execute(sa.select(batch.c.partition_key).where(batch.c.dataset_id == dataset_id)).scalars())
    values = []
    for ordinal, item in enumerate(items, first):
        key = _free_key(item.partition_key, taken)
        taken.add(key)
        source = {**item.source, "key": item.partition_key}
        values.append({"dataset_id": dataset_id, "ordinal": ordinal, "partition_key": key, "source": source})
    if not values:
        return []
    conn.execute(sa.insert(batch), values)
    conn.execute(sa.update(dataset).where(dataset.c.id == dataset_id).values(next_ordinal=first + len(values)))
    where = (batch.c.dataset_id == dataset_id) & (batch.c.ordinal >= first)
    return [as_row(BatchRow, row) for row in conn.execute(sa.select(batch).where(where).order_by(batch.c.ordinal))]


def _free_key(wish: str, taken: set[str]) -> str:
    if wish not in taken:
        return wish
    return next(key for n in count(2) if (key := f"{wish}~{n}") not in taken)
