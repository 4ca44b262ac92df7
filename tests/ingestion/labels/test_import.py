"""A bulk import lets label files arrive among the samples of history; open label batches hold later samples back."""

from typing import Any

import numpy as np
import pytest

from modyn_dagster.catalog.batches import visible_batches
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.labels.label_batches import mark_labels_failed
from modyn_dagster.catalog.labels.sample_ids import keys_of_ids
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.data.split import TRAIN
from modyn_dagster.errors import ConfigError, DataError
from modyn_dagster.ingestion.registration import retry_labels
from modyn_dagster.keys import KeyRange, key_of
from modyn_dagster.spec.dataset import DatasetSpec
from tests.ingestion.labels.label_world import LabelWorld, later_spec, samples
from tests.ingestion.world import dataset_spec


def arrivals(world: LabelWorld, spec: DatasetSpec) -> list[tuple[int | None, str]]:
    found = [(batch.arrival, batch.partition_key) for batch in world.batches(spec)]
    return sorted([*found, *((batch.arrival, f"label {batch.partition_key}") for batch in world.label_batches(spec))], key=str)


def visible(world: LabelWorld, spec: DatasetSpec) -> list[str]:
    with transaction(world.engine) as conn:
        return [batch.partition_key for batch in visible_batches(conn, ensure_dataset(conn, spec).id)]


def with_history(world: LabelWorld) -> None:
    for day in (1, 2, 3, 4):
        world.write(f"day_{day}.csv", samples(day, [10 * day, 10 * day + 1]))
    world.write_labels("x.csv", "10,1,2024-01-02T00:30:00\n")
    world.write_labels("y.csv", "10,0,2024-01-02T00:45:00\n11,0,2024-01-01T12:00:00\n")
    world.write_labels("z.csv", "20,1,2024-01-03T00:30:00\n99,1,2024-02-01\n")


@pytest.mark.parametrize("by", ["file", "count:2", "time:1d"])
def test_label_files_arrive_where_the_stream_has_reached_their_newest_label(world: LabelWorld, by: str) -> None:
    spec = later_spec()
    with_history(world)
    summary = world.import_all(spec, by)
    assert [result.partition_key for result in summary.labels] == ["x", "y", "z"]
    keys = [batch.partition_key for batch in world.batches(spec)]
    expected = [(0, keys[0]), (1, keys[1]), (2, "label x"), (2, "label y"), (3, keys[2]), (4, keys[3]), (5, "label z")]
    assert arrivals(world, spec) == expected
    assert [(key, value, arrival) for key, value, _, arrival in world.known(spec)] == [
        (0, 0, 2),
        (0, 1, 2),
        (1, 0, 2),
        (key_of(1, 0), 1, 5),
    ]
    assert [row.sample_id for row in world.waiting(spec)] == ["99"]
    again = world.import_all(spec, by)
    assert (again.ingested, again.labels) == ([], [])


@pytest.mark.parametrize("by", ["count:2", "time:1d"])
def test_label_files_between_the_slices_of_one_file_leave_no_sample_out(world: LabelWorld, by: str) -> None:
    spec = later_spec()
    days = [samples(day, [10 * day, 10 * day + 1]).splitlines(keepends=True) for day in range(1, 8)]
    world.write("week.csv", days[0][0] + "".join(row for day in days for row in day[1:]))
    world.write_labels("x.csv", "10,1,2024-01-02T00:30:00\n")
    world.write_labels("y.csv", "30,1,2024-01-04T00:30:00\n")
    summary = world.import_all(spec, by)
    assert [result.n_samples for result in summary.ingested] == [2] * 7
    assert [(batch.partition_key, batch.arrival) for batch in world.label_batches(spec)] == [("x", 2), ("y", 5)]
    assert [(key, arrival) for key, _, _, arrival in world.known(spec)] == [(0, 2), (key_of(2, 0), 5)]
    again = world.import_all(spec, by)
    assert (again.ingested, again.labels) == ([], [])


def test_an_open_label_batch_holds_back_samples_that_arrive_with_it_or_later(world: LabelWorld) -> None:
    spec = later_spec()
    with_history(world)
    world.run_import(spec)
    assert visible(world, spec) == ["day_1", "day_2", "day_3", "day_4"]
    world.register_labels(spec, "x.csv")
    world.register_labels(spec, "y.csv", arrival=2)
    assert visible(world, spec) == ["day_1", "day_2"]
    world.ingest_labels(spec, "y")
    world.write("day_5.csv", samples(5, [50]))
    world.run_import(spec)
    assert visible(world, spec) == ["day_1", "day_2", "day_3", "day_4"]
    world.write_labels("x.csv", "10,broken\n")
    with pytest.raises(DataError):
        world.ingest_labels(spec, "x")
    assert visible(world, spec) == ["day_1", "day_2", "day_3", "day_4", "day_5"]


def test_label_batches_that_are_registered_together_share_one_arrival(world: LabelWorld) -> None:
    spec = later_spec()
    with_history(world)
    world.run_import(spec)
    first = world.look_at_labels(spec)
    assert len(first.waiting) == 3
    registered = world.look_at_labels(spec, first).registered
    assert [(batch.partition_key, batch.arrival) for batch in registered] == [("x", 4), ("y", 4), ("z", 4)]
    assert world.dataset(spec).next_arrival == 5


def test_repaired_label_batches_arrive_together_with_new_ones(world: LabelWorld) -> None:
    spec = later_spec()
    with_history(world)
    for name in ("x.csv", "y.csv", "z.csv"):
        world.write_labels(name, "10,1,soon\n")
    assert len(world.import_all(spec).failed_labels) == 3
    for name in ("x.csv", "y.csv", "z.csv", "new.csv"):
        world.write_labels(name, "10,1,2024-01-02\n")
    retried = retry_labels(world.engine, spec, world.label_root, "z")
    again = world.look_at_labels(spec, world.look_at_labels(spec)).registered
    first = retried[0].arrival
    assert [(batch.partition_key, batch.arrival - first) for batch in again] == [("new", 1), ("x~2", 1), ("y~2", 1)]
    assert world.dataset(spec).next_arrival == first + 2
    for batch in again:
        with world.engine.begin() as conn:
            mark_labels_failed(conn, batch, "bad", {})
    later = retry_labels(world.engine, spec, world.label_root)
    assert [(batch.partition_key, batch.arrival - first) for batch in later] == [("new~2", 2), ("x~3", 2), ("y~3", 2)]


def test_batches_that_were_registered_before_labels_arrived_later_arrive_in_their_order(world: LabelWorld) -> None:
    with_history(world)
    world.register_all(dataset_spec())
    assert [batch.arrival for batch in world.batches(dataset_spec())] == [None] * 4
    spec = later_spec()
    assert [batch.arrival for batch in world.batches(spec)] == [0, 1, 2, 3]
    world.register_labels(spec, "y.csv")
    assert visible(world, spec) == []
    world.import_all(spec)
    assert arrivals(world, spec)[-3:] == [(4, "label y"), (5, "label x"), (5, "label z")]
    assert world.view(spec).label_position == 3


def test_two_samples_with_one_id_fail_the_batch_and_both_are_named(world: LabelWorld) -> None:
    spec = later_spec()
    world.write("1.csv", samples(1, [7, 8, 7]))
    world.write("2.csv", samples(2, [9, 8]))
    world.write("3.csv", samples(3, [9]))
    world.write("4.csv", samples(4, [10]))
    failed = {key: str(error) for key, error in world.import_all(spec).failed}
    assert failed.keys() == {"1", "3"}
    assert "1.csv, row 3: the id '7' is not unique" in failed["1"]
    assert "1.csv, row 1 has it too" in failed["1"]
    assert f"3.csv, row 1: the id '9' is not unique in the dataset: the sample with key {key_of(1, 0)}, of batch 2" in failed["3"]
    assert {path for path in world.files() if path.startswith("batches/")} == {"batches/d/1.arrow", "batches/d/3.arrow"}


def test_ids_of_several_columns_and_of_files(world: LabelWorld) -> None:
    spec = later_spec(id={"source": "columns", "columns": ["shop", "order"]}, label={"files": {**files_of(), "id": ["s", "o"]}})
    world.write("1.csv", "time,shop,order\n2024-01-01,1,12\n2024-01-02,11,2\n")
    world.write("../labels/a.csv", "s,o,label,known_at\n11,2,1,2024-01-03\n1,12,0,2024-01-03\n")
    world.import_all(spec)
    assert [(key, value) for key, value, *_ in world.known(spec)] == [(0, 0), (1, 1)]


def files_of() -> dict[str, object]:
    return {"root": "labels", "format": {"kind": "csv"}, "batches": {"kind": "file", "pattern": "*.csv"}}


def test_samples_that_are_files_are_named_by_their_file(world: LabelWorld) -> None:
    spec = later_spec(
        id={"source": "file_name"},
        format={"kind": "files", "suffixes": [".png"]},
        batches={"kind": "directory"},
        time={"source": "mtime"},
    )
    for name in ("007.png", "8.png"):
        world.write(f"a/{name}", name, mtime=1.7e9)
    world.write("a/_READY", "")
    world.write_labels("a.csv", "8.png,1,2024-01-03\n007.png,0,2024-01-03\n")
    world.import_all(spec)
    assert [(key, value) for key, value, *_ in world.known(spec)] == [(0, 0), (1, 1)]


def test_keys_of_a_hundred_thousand_ids_are_found_with_those_that_are_unknown(world: LabelWorld) -> None:
    spec = later_spec()
    world.write("1.csv", samples(1, range(20)))
    world.run_import(spec)
    asked = [str(n) for n in range(-100_000, 20)]
    with transaction(world.engine) as conn:
        keys, found = keys_of_ids(conn, world.dataset(spec).id, asked)
    assert np.flatnonzero(found).tolist() == list(range(100_000, 100_020))
    assert keys[found].tolist() == list(range(20))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": None}, "name samples by their id"),
        ({"id": {"source": "file_name"}}, "rows have column or columns"),
        ({"label": {"files": None}}, "need `files`"),
        ({"label": {"arrives": "with_sample"}}, "add `arrives: later`"),
        ({"label": {"files": {**files_of(), "id": ["a", "b"]}}}, "names 2 columns"),
        ({"label": {"files": {**files_of(), "format": {"kind": "fixed_rows", "dtype": [["id", "<i8"]]}}}}, "is not a field"),
        ({"label": {"default_after": {"label": 0, "after": "30d"}}}, "needs `n_classes` or `classes`"),
        ({"label": {"n_classes": 2, "default_after": {"label": 2, "after": "30d"}}}, "must be a class, 0 to 1, not 2"),
        (
            {"label": {"classes": ["a", "b"], "default_after": {"label": "c", "after": "30d"}}},
            r"one of classes \(a, b\), not 'c'",
        ),
        ({"label": {"kind": "target", "default_after": {"label": "c", "after": "30d"}}}, "must be a number"),
        ({"label": {"n_classes": 2, "default_after": {"label": 1, "after": "30"}}}, "a whole number and a unit"),
    ],
)
def test_an_impossible_spec_of_labels_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        later_spec(**fields)


def test_ids_and_labels_are_frozen_once_data_are_ingested_but_label_files_may_move(world: LabelWorld) -> None:
    spec = later_spec()
    world.write("1.csv", samples(1, [7]))
    world.run_import(spec)
    world.dataset(later_spec(label={"files": {**files_of(), "root": "elsewhere"}}))
    with pytest.raises(ConfigError, match="id"):
        world.dataset(later_spec(id={"source": "column", "column": "x"}))
    for label in ({"n_classes": 3}, {"n_classes": 2, "default_after": {"label": 0, "after": "1d"}}):
        with pytest.raises(ConfigError, match="label"):
            world.dataset(later_spec(label=label))


@pytest.mark.parametrize(
    ("label", "cells", "expected"),
    [
        ({"n_classes": 2}, ["1", "", "0"], [1, -1, 0]),
        ({}, ["1", "", "0"], [1, -1, 0]),
        ({}, ["cat", "", "dog"], [0, -1, 1]),
        ({"classes": ["dog", "cat"]}, ["cat", "", "dog"], [1, -1, 0]),
        ({}, ["", "", ""], [-1, -1, -1]),
    ],
)
def test_a_missing_label_in_the_samples_own_file_is_none_yet(
    world: LabelWorld, label: dict[str, object], cells: list[str], expected: list[int]
) -> None:
    own = {"arrives": "later", "from": {"source": "column", "column": "label"}, **label}
    spec = dataset_spec(label=own)
    world.write("1.csv", "time,x,label\n" + "".join(f"2024-01-0{day},1,{cell}\n" for day, cell in enumerate(cells, 1)))
    [result] = world.run_import(spec).ingested
    assert [row[2] for row in world.rows(spec)] == expected
    assert sum(result.label_counts.values()) == sum(value >= 0 for value in expected)
    known = [(key, value, f"2024-01-0{key + 1}T00:00:00", 0) for key, value in enumerate(expected) if value >= 0]
    assert world.known(spec) == known
    view = world.view(spec)
    assert view.labels(view.batches[0])[0].tolist() == expected


def test_labels_in_the_samples_own_file_are_corrected_and_completed_by_later_ones(world: LabelWorld) -> None:
    spec = later_spec({"from": {"source": "column", "column": "y"}})
    world.write("1.csv", "time,id,y\n2024-01-01,7,cat\n2024-01-02,8,\n2024-01-03,9,dog\n")
    world.write("2.csv", "time,id,y\n2024-01-04,10,cat\n")
    world.write_labels("a.csv", "8,fox,2024-01-04\n9,cat,2024-01-04\n")
    world.import_all(spec)
    view = world.view(spec)
    assert world.dataset(spec).class_names == ("cat", "dog", "fox")
    assert [view.labelled_as_of(position).labels(view.batches[0])[0].tolist() for position in (0, 2)] == [[0, -1, 1], [0, 2, 0]]
    assert view.labels(view.batches[1])[0].tolist() == [0]


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ({"classes": ["cat", "dog"], "default_after": {"label": "dog", "after": "2d"}}, [0, 1, -1, -1]),
        ({"kind": "target", "default_after": {"label": 3, "after": "2d"}}, [0.5, 3.0, None, None]),
    ],
)
def test_a_label_that_has_not_come_in_time_is_the_default_one(
    world: LabelWorld, label: dict[str, Any], expected: list[float | None]
) -> None:
    spec = dataset_spec(label={"arrives": "later", "from": {"source": "column", "column": "label"}, **label})
    first = "0.5" if label.get("kind") == "target" else "cat"
    world.write("1.csv", f"time,x,label\n2024-01-01,1,{first}\n2024-01-02,1,\n2024-01-03,1,\n2024-01-04,1,\n")
    world.run_import(spec)
    view = world.view(spec)
    values, known = view.labels(view.batches[0])
    assert [value if is_known else None for value, is_known in zip(values.tolist(), known.tolist(), strict=True)] == [
        None if value == -1 else value for value in expected
    ]
    # Any reader of samples has them.
    samples = world.reader(spec).read(view.keys_on(TRAIN, KeyRange(-1, view.last_key)))
    found = samples.targets if samples.labels is None else samples.labels
    assert found is not None
    np.testing.assert_array_equal(found, values)


def test_a_missing_target_is_none_yet_and_a_broken_class_is_named(world: LabelWorld) -> None:
    own = {"arrives": "later", "from": {"source": "column", "column": "label"}}
    spec = dataset_spec(label={**own, "kind": "target"})
    world.write("1.csv", "time,x,label\n2024-01-01,1,0.5\n2024-01-02,1,\n")
    world.run_import(spec)
    assert [str(row[3]) for row in world.rows(spec)] == ["0.5", "nan"]
    assert world.known(spec) == [(0, 0.5, "2024-01-01T00:00:00", 0)]
    other = dataset_spec(name="e", label={**own, "n_classes": 2})
    [(_, error)] = world.run_import(other).failed
    assert "1.csv, row 1, column 'label': the class 0.5 is not an integer" in str(error)
