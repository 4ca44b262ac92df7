"""Registration of batches of samples and of labels: partition keys, the next ordinals, and places in the sequence of arrivals.

A batch of either kind is announced with the paths that identify it, and is open until ingestion closes it. A failed one may be
delivered again, once, as a new batch.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count
from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.batches import REPLACES, BatchRow, batch
from modyn_dagster.catalog.database.failures import without_failure
from modyn_dagster.catalog.database.mapping import list_rows
from modyn_dagster.catalog.datasets import DatasetRow, arrive_later, dataset, lock_dataset
from modyn_dagster.catalog.labels.label_batches import LabelBatchRow, label_batch
from modyn_dagster.errors import CatalogError
from modyn_dagster.keys import MAX_ORDINAL


@dataclass(frozen=True, slots=True)
class Announcement:
    """A batch that can be registered.

    Attributes:
        partition_key: preferred key; a key that is taken gets a number.
        source: JSON description of what to ingest, with at least ``paths``: the files, the directory or the manifest that
            identify the batch.
    """

    partition_key: str
    source: Mapping[str, Any]


def register(
    conn: sa.Connection, dataset_id: int, announcements: Sequence[Announcement], registered: Set[str] | None = None
) -> list[BatchRow]:
    """Give batches the next ordinals, in the order announced; a batch with an already registered path is left out.

    ``registered`` holds the paths of the dataset's batches; None: read them. Who registers slices of one file in several calls
    reads them once, before the first and with the dataset locked: all slices have the path of their file.
    """
    row = lock_dataset(conn, dataset_id)
    if registered is None:
        registered = known_paths(conn, dataset_id)
    return _insert(conn, row, [item for item in announcements if registered.isdisjoint(item.source["paths"])])


def register_again(conn: sa.Connection, failed: BatchRow) -> BatchRow | None:
    """Deliver a failed batch again at the end of the stream, under the key ``<key>~2``; None if it was done before."""
    row = lock_dataset(conn, failed.dataset_id)
    if not _awaits_repair(conn, batch, failed.id):
        return None
    [again] = _insert(conn, row, [_announced_again(failed)])
    _mark_repaired(conn, batch, failed.id, again.id)
    return again


def register_replacement(conn: sa.Connection, replaced: BatchRow) -> BatchRow:
    """Register the batch that replaces an ingested one, with the same paths, at the end of the stream, under the key ``<key>~2``.

    A replacement that is open or ingested is returned as it is; a failed one is delivered again.
    """
    row = lock_dataset(conn, replaced.dataset_id)
    first = batch.c.source[REPLACES][0].astext
    where = (batch.c.dataset_id == row.id) & (first == replaced.partition_key)
    newest = list_rows(conn, BatchRow, sa.select(batch).where(where).order_by(batch.c.ordinal.desc()).limit(1))
    if newest and newest[0].state != "failed":
        return newest[0]
    if newest and (again := register_again(conn, newest[0])) is not None:
        return again
    replaces = [replaced.partition_key, *replaced.source.get(REPLACES, ())]
    source = {"paths": replaced.source["paths"], REPLACES: replaces}
    [added] = _insert(conn, row, [Announcement(replaced.source["key"], source)])
    return added


def register_labels(
    conn: sa.Connection, dataset_id: int, announcements: Sequence[Announcement], failed: Sequence[LabelBatchRow] = ()
) -> list[LabelBatchRow]:
    """Give label batches the next ordinals and one arrival, the next one.

    First those announced, in this order, without those that have an already registered path; then the failed ones, delivered
    again under keys ``<key>~2``, without those that were before.
    """
    row = lock_dataset(conn, dataset_id)
    registered = known_label_paths(conn, dataset_id)
    fresh = [item for item in announcements if registered.isdisjoint(item.source["paths"])]
    repaired = [each for each in failed if _awaits_repair(conn, label_batch, each.id)]
    added = _insert_labels(conn, row, [*fresh, *map(_announced_again, repaired)])
    for each, again in zip(repaired, added[len(fresh) :], strict=True):
        _mark_repaired(conn, label_batch, each.id, again.id)
    return added


def known_paths(conn: sa.Connection, dataset_id: int) -> set[str]:
    """Paths under which batches of a dataset were announced; the same path again is no new batch."""
    return _paths(conn, batch, dataset_id)


def known_label_paths(conn: sa.Connection, dataset_id: int) -> set[str]:
    """Paths under which label batches of a dataset were announced."""
    return _paths(conn, label_batch, dataset_id)


def _insert(conn: sa.Connection, row: DatasetRow, items: Sequence[Announcement]) -> list[BatchRow]:
    first = row.next_ordinal
    if first + len(items) > MAX_ORDINAL:
        raise CatalogError(f"dataset {row.id} would pass batch ordinal {MAX_ORDINAL}; register larger batches in a new dataset")
    values = _numbered(conn, batch, row.id, first, items)
    if not values:
        return []
    counters = {"next_ordinal": first + len(values)}
    if arrive_later(row.spec):
        values = [each | {"arrival": arrival} for arrival, each in enumerate(values, row.next_arrival)]
        counters["next_arrival"] = row.next_arrival + len(values)
    conn.execute(sa.insert(batch), values)
    conn.execute(sa.update(dataset).where(dataset.c.id == row.id).values(counters))
    return list_rows(conn, BatchRow, _from_ordinal(batch, row.id, first))


def _insert_labels(conn: sa.Connection, row: DatasetRow, items: Sequence[Announcement]) -> list[LabelBatchRow]:
    of_dataset = label_batch.c.dataset_id == row.id
    first = conn.execute(sa.select(sa.func.count()).select_from(label_batch).where(of_dataset)).scalar_one()
    values = [each | {"arrival": row.next_arrival} for each in _numbered(conn, label_batch, row.id, first, items)]
    if not values:
        return []
    conn.execute(sa.insert(label_batch), values)
    conn.execute(sa.update(dataset).where(dataset.c.id == row.id).values(next_arrival=row.next_arrival + 1))
    return list_rows(conn, LabelBatchRow, _from_ordinal(label_batch, row.id, first))


def _numbered(
    conn: sa.Connection, batches: sa.Table, dataset_id: int, first: int, items: Sequence[Announcement]
) -> list[dict[str, Any]]:
    """Rows to insert into a table of batches, with ordinals from ``first`` and keys that no other row has."""
    taken = set(conn.execute(sa.select(batches.c.partition_key).where(batches.c.dataset_id == dataset_id)).scalars())
    values = []
    for ordinal, item in enumerate(items, first):
        key = _free_key(item.partition_key, taken)
        taken.add(key)
        source = {**item.source, "key": item.partition_key}
        values.append({"dataset_id": dataset_id, "ordinal": ordinal, "partition_key": key, "source": source})
    return values


def _free_key(key: str, taken: Set[str]) -> str:
    if key not in taken:
        return key
    return next(numbered for n in count(2) if (numbered := f"{key}~{n}") not in taken)


def _from_ordinal(batches: sa.Table, dataset_id: int, first: int) -> sa.Select[Any]:
    where = (batches.c.dataset_id == dataset_id) & (batches.c.ordinal >= first)
    return sa.select(batches).where(where).order_by(batches.c.ordinal)


def _paths(conn: sa.Connection, batches: sa.Table, dataset_id: int) -> set[str]:
    paths = sa.func.jsonb_array_elements_text(batches.c.source["paths"])
    return set(conn.execute(sa.select(paths).where(batches.c.dataset_id == dataset_id)).scalars())


def _awaits_repair(conn: sa.Connection, batches: sa.Table, batch_id: int) -> bool:
    """Tell whether a batch has failed and was not delivered again; the caller holds the dataset's lock."""
    found = conn.execute(sa.select(batches.c.state, batches.c.repaired_by).where(batches.c.id == batch_id)).one()
    return found.state == "failed" and found.repaired_by is None


def _announced_again(failed: BatchRow | LabelBatchRow) -> Announcement:
    source = without_failure(failed.source)
    return Announcement(source["key"], source)


def _mark_repaired(conn: sa.Connection, batches: sa.Table, failed: int, again: int) -> None:
    conn.execute(sa.update(batches).where(batches.c.id == failed).values(repaired_by=again))
