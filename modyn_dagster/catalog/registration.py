"""Registration of datasets, with their partition of ``sample``, and of batches of samples and labels, under the next ordinals."""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.batches import REPLACES, BatchRow, batch
from modyn_dagster.catalog.database.failures import without_failure
from modyn_dagster.catalog.database.mapping import list_rows
from modyn_dagster.catalog.datasets import DatasetRow, dataset, find_dataset, get_dataset, lock_dataset
from modyn_dagster.catalog.labels.label_batches import LabelBatchRow, label_batch
from modyn_dagster.catalog.labels.waiting import has_labels
from modyn_dagster.catalog.layouts import widen
from modyn_dagster.catalog.removal.journal import require_no_removal
from modyn_dagster.errors import CatalogError, ConfigError
from modyn_dagster.keys import MAX_ORDINAL
from modyn_dagster.spec.dataset import DatasetSpec

#: Fields that decide keys, labels and sides; fixed once a batch is ingested.
FROZEN_FIELDS: Final = ("format", "time", "id", "label", "attributes", "split")


def ensure_dataset(conn: sa.Connection, spec: DatasetSpec) -> DatasetRow:
    """Create the dataset's row and its partition of ``sample``, or bring the row up to date with the spec.

    Raises ``ConfigError`` naming the field when a spec changes how ingested data were read.
    """
    row = find_dataset(conn, spec.name) or _create(conn, spec)
    return row if row.spec == _stored(spec) else _update(conn, lock_dataset(conn, row.id), spec)


def _create(conn: sa.Connection, spec: DatasetSpec) -> DatasetRow:
    values = {"name": spec.name, "spec": _stored(spec), "class_names": _declared_classes(spec)}
    statement = insert(dataset).values(**values).on_conflict_do_nothing(index_elements=["name"]).returning(dataset.c.id)
    created: int | None = conn.execute(statement).scalar_one_or_none()
    # None: another process created it, and its transaction has ended by now.
    if created is not None:
        require_no_removal(conn, spec.name)
        # By a function with the rights of the schema's owner: this role may write rows only.
        conn.execute(sa.select(sa.func.add_sample_partition(created)))
    return get_dataset(conn, spec.name)


def _update(conn: sa.Connection, row: DatasetRow, spec: DatasetSpec) -> DatasetRow:
    stored = _stored(spec)
    values: dict[str, Any] = {"spec": stored}
    ingested = sa.select(batch.c.id).where(batch.c.dataset_id == row.id, batch.c.state == "ingested").limit(1)
    if conn.execute(ingested).one_or_none() is not None:
        _refuse_frozen_changes(row, stored)
        widen(conn, row, spec)
    else:
        values |= {"columns": sa.null(), "layouts": []}
        if _arrive_later(stored):
            values["next_arrival"] = _let_arrive(conn, row)
        if has_labels(conn, row.id):
            # Labels that wait for their samples were read by these, and have numbers for the names of their classes.
            _refuse_frozen_changes(row, stored, ("id", "label"))
        else:
            values["class_names"] = _declared_classes(spec)
    conn.execute(sa.update(dataset).where(dataset.c.id == row.id).values(values))
    return get_dataset(conn, row.name)


def _arrive_later(stored: Mapping[str, Any]) -> bool:
    return (stored["label"] or {}).get("arrives") == "later"


def _let_arrive(conn: sa.Connection, row: DatasetRow) -> int:
    """Give batches that were registered before labels arrived later the next arrivals, in their order; returns the next one."""
    without = sa.select(batch.c.id).where(batch.c.dataset_id == row.id, batch.c.arrival.is_(None)).order_by(batch.c.ordinal)
    ids = conn.execute(without).scalars().all()
    for arrival, batch_id in enumerate(ids, row.next_arrival):
        conn.execute(sa.update(batch).where(batch.c.id == batch_id).values(arrival=arrival))
    return row.next_arrival + len(ids)


def _refuse_frozen_changes(row: DatasetRow, after: Mapping[str, Any], fields: Collection[str] = FROZEN_FIELDS) -> None:
    # Parsed again, so that a field this version added with a default is no difference.
    before = _stored(DatasetSpec.model_validate(row.spec))
    new = after["absent"].keys() - {column.name for column in row.columns or ()}
    for field in fields:
        # A field that is not used may be left out.
        earlier, later = before.get(field), after.get(field)
        if _decisive(earlier) != _decisive(later, new):
            rule = f"cannot change once data are ingested, it was {earlier!r}; restore it, or name a new dataset"
            raise ConfigError(f"dataset {row.name}", field, later, rule)
    if fields is not FROZEN_FIELDS:
        return
    for name, value in before["absent"].items():
        if after["absent"].get(name) != value:
            rule = f"cannot change once data are ingested, it was {value!r}: samples were read with it; restore it"
            raise ConfigError(f"dataset {row.name}", f"absent.{name}", after["absent"].get(name), rule)
    if before["batches"]["kind"] != after["batches"]["kind"]:
        rule = f"cannot change once data are ingested, it was {before['batches']['kind']!r}; name a new dataset"
        raise ConfigError(f"dataset {row.name}", "batches.kind", after["batches"]["kind"], rule)


def _decisive(field: Any, new: Collection[str] = ()) -> Any:
    """A field of a spec without settings that only say where bytes are kept, and without columns that no batch has yet."""
    if not isinstance(field, dict):
        return field
    kept = {name: value for name, value in field.items() if name != "packed_bytes"}
    if isinstance(kept.get("files"), dict):
        # Label files may move, and have another pattern.
        kept["files"] = {name: value for name, value in kept["files"].items() if name not in ("root", "batches")}
    if isinstance(kept.get("columns"), dict):
        kept["columns"] = {name: dtype for name, dtype in kept["columns"].items() if name not in new}
    if "dtype" in kept:
        kept["dtype"] = [entry for entry in kept["dtype"] if entry[0] not in new]
    return kept


def _stored(spec: DatasetSpec) -> dict[str, Any]:
    return spec.model_dump(mode="json", by_alias=True, exclude={"storage_options"})


def _declared_classes(spec: DatasetSpec) -> list[str]:
    return list(spec.label.classes or []) if spec.label is not None else []


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
    fresh = [item for item in announcements if registered.isdisjoint(item.source["paths"])]
    return _insert(conn, row, fresh)


def register_again(conn: sa.Connection, failed: BatchRow) -> BatchRow | None:
    """Deliver a failed batch again at the end of the stream, under the key ``<key>~2``; None if it was done before."""
    row = lock_dataset(conn, failed.dataset_id)
    state = conn.execute(sa.select(batch.c.state, batch.c.repaired_by).where(batch.c.id == failed.id)).one()
    if state.state != "failed" or state.repaired_by is not None:
        return None
    source = without_failure(failed.source)
    [again] = _insert(conn, row, [Announcement(source["key"], source)])
    conn.execute(sa.update(batch).where(batch.c.id == failed.id).values(repaired_by=again.id))
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


def known_paths(conn: sa.Connection, dataset_id: int) -> set[str]:
    """Paths under which batches of a dataset were announced; the same path again is no new batch."""
    paths = sa.func.jsonb_array_elements_text(batch.c.source["paths"])
    return set(conn.execute(sa.select(paths).where(batch.c.dataset_id == dataset_id)).scalars())


def register_labels(
    conn: sa.Connection, dataset_id: int, announcements: Sequence[Announcement], arrival: int | None = None
) -> list[LabelBatchRow]:
    """Give label batches the next ordinals, in the order announced, and one arrival; a registered path is left out.

    ``arrival`` is that of batches which were registered in the same transaction; None: the next one.
    """
    row = lock_dataset(conn, dataset_id)
    registered = known_label_paths(conn, dataset_id)
    fresh = [item for item in announcements if registered.isdisjoint(item.source["paths"])]
    return _insert_labels(conn, row, fresh, arrival)


def register_labels_again(conn: sa.Connection, failed: LabelBatchRow, arrival: int | None = None) -> LabelBatchRow | None:
    """Deliver a failed label batch again under the key ``<key>~2``; None if it was done before.

    ``arrival`` is that of label batches which were registered in the same transaction; None: the next one.
    """
    row = lock_dataset(conn, failed.dataset_id)
    columns = label_batch.c.state, label_batch.c.repaired_by
    state = conn.execute(sa.select(*columns).where(label_batch.c.id == failed.id)).one()
    if state.state != "failed" or state.repaired_by is not None:
        return None
    source = without_failure(failed.source)
    [again] = _insert_labels(conn, row, [Announcement(source["key"], source)], arrival)
    conn.execute(sa.update(label_batch).where(label_batch.c.id == failed.id).values(repaired_by=again.id))
    return again


def known_label_paths(conn: sa.Connection, dataset_id: int) -> set[str]:
    """Paths under which label batches of a dataset were announced."""
    paths = sa.func.jsonb_array_elements_text(label_batch.c.source["paths"])
    return set(conn.execute(sa.select(paths).where(label_batch.c.dataset_id == dataset_id)).scalars())


def _insert_labels(
    conn: sa.Connection, row: DatasetRow, items: Sequence[Announcement], arrival: int | None = None
) -> list[LabelBatchRow]:
    of_dataset = label_batch.c.dataset_id == row.id
    taken = set(conn.execute(sa.select(label_batch.c.partition_key).where(of_dataset)).scalars())
    first, place = len(taken), row.next_arrival if arrival is None else arrival
    values = []
    for ordinal, item in enumerate(items, first):
        key = _free_key(item.partition_key, taken)
        taken.add(key)
        source = {**item.source, "key": item.partition_key}
        values.append({"dataset_id": row.id, "ordinal": ordinal, "arrival": place, "partition_key": key, "source": source})
    if not values:
        return []
    conn.execute(sa.insert(label_batch), values)
    if arrival is None:
        conn.execute(sa.update(dataset).where(dataset.c.id == row.id).values(next_arrival=row.next_arrival + 1))
    added = sa.select(label_batch).where(of_dataset & (label_batch.c.ordinal >= first)).order_by(label_batch.c.ordinal)
    return list_rows(conn, LabelBatchRow, added)


def _insert(conn: sa.Connection, row: DatasetRow, items: Sequence[Announcement]) -> list[BatchRow]:
    dataset_id, first = row.id, row.next_ordinal
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
    counters = {"next_ordinal": first + len(values)}
    if _arrive_later(row.spec):
        values = [each | {"arrival": arrival} for arrival, each in enumerate(values, row.next_arrival)]
        counters["next_arrival"] = row.next_arrival + len(values)
    conn.execute(sa.insert(batch), values)
    conn.execute(sa.update(dataset).where(dataset.c.id == dataset_id).values(counters))
    where = (batch.c.dataset_id == dataset_id) & (batch.c.ordinal >= first)
    return list_rows(conn, BatchRow, sa.select(batch).where(where).order_by(batch.c.ordinal))


def _free_key(key: str, taken: set[str]) -> str:
    if key not in taken:
        return key
    return next(numbered for n in count(2) if (numbered := f"{key}~{n}") not in taken)
