"""Datasets: registration, partitions, fixed fields, and class names."""

from typing import Any

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.datasets import append_class_names, get_dataset, lock_dataset, partition_of
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.errors import ConfigError, UnknownName
from tests.ingestion.world import LABEL, World, dataset_spec


def ingested(world: World) -> None:
    world.write("a.csv", "time,x,label\n2020-01-01,1,0\n")
    assert len(world.run_import(dataset_spec()).ingested) == 1


def test_a_dataset_is_created_once_with_a_partition_of_its_own(engine: sa.Engine) -> None:
    with transaction(engine) as conn:
        first, second = ensure_dataset(conn, dataset_spec()), ensure_dataset(conn, dataset_spec(name="e"))
        assert ensure_dataset(conn, dataset_spec()) == first
        partitions = sa.text("select inhrelid::regclass::text from pg_inherits where inhparent = 'sample'::regclass order by 1")
        assert conn.execute(partitions).scalars().all() == [partition_of(first.id), partition_of(second.id)]
        indexes = sa.text("select indexdef from pg_indexes where tablename = :leaf")
        assert "USING brin (key)" in conn.execute(indexes, {"leaf": partition_of(first.id)}).scalar_one()
    assert (first.name, first.columns, first.class_names, first.next_ordinal) == ("d", None, (), 0)


def test_storage_options_are_not_stored(engine: sa.Engine) -> None:
    with transaction(engine) as conn:
        row = ensure_dataset(conn, dataset_spec(storage_options={"secret": "hunter2"}))
        assert "hunter2" not in str(row.spec)


def test_declared_classes_have_their_index_from_the_start(engine: sa.Engine) -> None:
    with transaction(engine) as conn:
        assert ensure_dataset(conn, dataset_spec(label={**LABEL, "classes": ["cat", "dog"]})).class_names == ("cat", "dog")


def test_an_unknown_name_lists_the_known_ones(engine: sa.Engine) -> None:
    with transaction(engine) as conn:
        for name in ("b", "a"):
            ensure_dataset(conn, dataset_spec(name=name))
        with pytest.raises(UnknownName, match="no dataset 'c'; known: a, b"):
            get_dataset(conn, "c")


FROZEN: dict[str, Any] = {
    "split": {"train": 0.5, "evaluate": 0.5},
    "format": {"kind": "csv", "delimiter": ";"},
    "time": {"source": "column", "column": "when"},
    "label": {**LABEL, "n_classes": 3},
    "attributes": ["x"],
    "batches.kind": {"kind": "manifest"},
}


def test_what_decides_keys_and_labels_is_fixed_once_data_are_ingested(world: World) -> None:
    for field, value in FROZEN.items():
        # As long as nothing is ingested it may change.
        world.dataset(dataset_spec(**{field.partition(".")[0]: value}))
    ingested(world)
    for field, value in FROZEN.items():
        with pytest.raises(ConfigError, match="cannot change once data are ingested") as caught:
            world.dataset(dataset_spec(**{field.partition(".")[0]: value}))
        assert caught.value.field == field


FREE: dict[str, Any] = {
    "description": "new",
    "owners": ["team:new"],
    "root": "elsewhere",
    "sensor_interval": 5,
    "batches": {"kind": "file", "pattern": "*.csv", "quiet_seconds": 2.0},
}


def test_what_decides_nothing_may_change_any_time(world: World) -> None:
    ingested(world)
    before = world.dataset(dataset_spec())
    for field, value in FREE.items():
        row = world.dataset(dataset_spec(**{field: value}))
        assert row.spec[field] == value
        assert row.columns == before.columns


def test_a_spec_that_changes_before_anything_is_ingested_starts_afresh(world: World) -> None:
    with transaction(world.engine) as conn:
        row = ensure_dataset(conn, dataset_spec())
        append_class_names(conn, lock_dataset(conn, row.id), ["old"])
    assert world.dataset(dataset_spec(label={**LABEL, "classes": ["a"]})).class_names == ("a",)


def test_class_names_are_only_ever_appended(engine: sa.Engine) -> None:
    with transaction(engine) as conn:
        row = ensure_dataset(conn, dataset_spec())
        append_class_names(conn, row, ["b", "a"])
        names = append_class_names(conn, lock_dataset(conn, row.id), ["a", "c", "b"])
        assert names == get_dataset(conn, "d").class_names == ("b", "a", "c")
