"""Registration of datasets, with their partition of ``sample``; a spec changes nothing that decides how data were ingested."""

from collections.abc import Collection, Mapping
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.batches import batch
from modyn_dagster.catalog.datasets import DatasetRow, arrive_later, dataset, find_dataset, get_dataset, lock_dataset
from modyn_dagster.catalog.labels.waiting import has_labels
from modyn_dagster.catalog.layouts import widen
from modyn_dagster.catalog.removal.journal import require_no_removal
from modyn_dagster.errors import ConfigError
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
        if arrive_later(stored):
            values["next_arrival"] = _let_arrive(conn, row)
        if has_labels(conn, row.id):
            # Labels that wait for their samples were read by these, and have numbers for the names of their classes.
            _refuse_frozen_changes(row, stored, ("id", "label"))
        else:
            values["class_names"] = _declared_classes(spec)
    conn.execute(sa.update(dataset).where(dataset.c.id == row.id).values(values))
    return get_dataset(conn, row.name)


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
            was = "none" if earlier is None else repr(earlier)
            rule = f"cannot change once data are ingested, it was {was}; restore it, or name a new dataset"
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
