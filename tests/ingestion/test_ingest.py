import json
import os
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastpath.format.index import BatchIndex
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.split import TRAIN, side_of
from modyn_dagster.errors import ChangedBatch, DataError, DuplicateFile, SchemaMismatch, UnknownName
from modyn_dagster.keys import key_of
from tests.ingestion.world import LABEL, World, dataset_spec

HEADER = "time,x,label\n"


def test_positions_are_in_time_file_row_order(world: World) -> None:
    spec = dataset_spec(batches={"kind": "directory"}, label=None)
    world.write("b/10.csv", "time,x\n2020-01-02,1\n2020-01-01,2\n2020-01-01,3\n")
    world.write("b/9.csv", "time,x\n2020-01-02,4\n2020-01-01,5\n")
    world.write("b/_READY", "")
    [result] = world.run_import(spec).ingested
    reader = world.reader(spec)
    assert reader.read(world.keys(spec)).columns["x"].tolist() == [5, 2, 3, 4, 1]
    assert world.keys(spec).tolist() == [key_of(0, i) for i in range(5)]
    assert (result.time_min, result.time_max) == (datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 2, tzinfo=UTC))


def test_a_batch_knows_what_it_holds(world: World) -> None:
    spec = dataset_spec(split={"train": 0.5, "evaluate": 0.5, "salt": 3}, attributes=["x", "time"])
    world.write("a.csv", HEADER + "".join(f"2020-01-{day:02d},{day}.5,{day % 3}\n" for day in range(1, 31)))
    [result] = world.run_import(spec).ingested
    [batch] = world.batches(spec)
    train = side_of(world.keys(spec), spec.split) == TRAIN
    assert (batch.state, batch.n_samples, batch.n_train) == ("ingested", 30, int(train.sum()))
    assert (result.label_counts, batch.label_counts) == ({"0": 10, "1": 10, "2": 10},) * 2
    assert batch.train_time_max == datetime(2020, 1, 1 + int(np.flatnonzero(train)[-1]), tzinfo=UTC)
    assert world.dataset(spec).columns == (Column("time", "string"), Column("x", "float64"), Column("label", "int64"))
    key, time, label, target, attributes = world.rows(spec)[4]
    assert (key, time, label, target) == (4, datetime(2020, 1, 5, tzinfo=UTC), 2, None)
    assert attributes == {"x": 5.5, "time": "2020-01-05"}


def test_the_index_is_what_the_catalog_says_and_holds_the_same_as_postgres(world: World) -> None:
    spec = dataset_spec(label={"kind": "target", "from": {"source": "column", "column": "x"}})
    world.write("a.csv", HEADER + "2020-01-02,1.5,0\n2020-01-01,2.5,0\n")
    world.run_import(spec)
    [batch] = world.batches(spec)
    assert batch.index_path == "batches/d/0.arrow"
    index = BatchIndex.open(world.home / batch.index_path, batch.index_checksum)
    assert index.labels is None
    assert index.targets is not None
    rows = world.rows(spec)
    assert [row[3] for row in rows] == index.targets.tolist() == [2.5, 1.5]
    assert [row[1].replace(tzinfo=None) for row in rows] == index.times.tolist()


def test_a_batch_without_train_samples_has_no_train_time(world: World) -> None:
    spec = dataset_spec(split={"train": 0.001, "evaluate": 0.999, "salt": 1})
    world.write("a.csv", HEADER + "2020-01-02,1.5,0\n")
    world.run_import(spec)
    [batch] = world.batches(spec)
    assert (batch.n_train, batch.train_time_max) == (0, None)


def test_an_ingested_batch_materialized_again_is_left_alone(world: World) -> None:
    spec = dataset_spec()
    path = world.write("a.csv", HEADER + "2020-01-02,1.5,0\n")
    [first] = world.run_import(spec).ingested
    files, rows = world.files(), world.rows(spec)
    os.utime(path, (1, 1))
    again = world.ingest(spec, "a")
    assert (first.already_ingested, again.already_ingested) == (False, True)
    assert (again.checksum, again.n_samples) == (first.checksum, 1)
    assert (world.files(), world.rows(spec)) == (files, rows)


def test_an_ingested_file_that_changed_is_named(world: World) -> None:
    spec = dataset_spec()
    world.write("a.csv", HEADER + "2020-01-02,1.5,0\n")
    world.run_import(spec)
    world.write("a.csv", HEADER + "2020-01-02,1.6,0\n")
    with pytest.raises(ChangedBatch, match=r"a\.csv: the content changed after it was ingested"):
        world.ingest(spec, "a")
    (world.root / "a.csv").unlink()
    with pytest.raises(ChangedBatch, match=r"a\.csv: .* now does not exist"):
        world.ingest(spec, "a")
    assert world.states(spec) == {"a": "ingested"}


def test_a_file_that_joins_an_ingested_directory_is_named(world: World) -> None:
    spec = dataset_spec(batches={"kind": "directory"})
    world.write("a/1.csv", HEADER + "2020-01-02,1.5,0\n")
    world.write("a/_READY", "")
    world.run_import(spec)
    assert world.ingest(spec, "a").already_ingested
    world.write("a/2.csv", HEADER + "2020-01-02,1.5,0\n")
    with pytest.raises(ChangedBatch, match=r"a/2\.csv: .* the file was not there"):
        world.ingest(spec, "a")


def test_a_batch_that_was_never_registered_is_unknown(world: World) -> None:
    with pytest.raises(UnknownName, match="no batch 'a'"):
        world.ingest(dataset_spec(), "a")


def test_a_failed_batch_says_why_and_what_to_do(world: World) -> None:
    world.write("a.csv", HEADER + "2020-01-02,1.5,\n")
    world.run_import(dataset_spec())
    with pytest.raises(DataError, match=r"failed .*label is missing.*`modyn-dagster dataset retry d a`"):
        world.ingest(dataset_spec(), "a")


def test_classes_are_numbered_as_they_appear_in_the_stream(world: World) -> None:
    spec = dataset_spec()
    world.write("a.csv", HEADER + "2020-01-02,1,dog\n2020-01-01,2,cat\n2020-01-03,2,cat\n")
    world.write("b.csv", HEADER + "2020-02-02,1,ant\n2020-02-03,2,dog\n")
    world.run_import(spec)
    assert world.dataset(spec).class_names == ("cat", "dog", "ant")
    assert [row[2] for row in world.rows(spec)] == [0, 1, 0, 2, 1]
    assert [batch.label_counts for batch in world.batches(spec)] == [{"cat": 2, "dog": 1}, {"ant": 1, "dog": 1}]


def test_declared_classes_keep_their_order_even_if_they_look_like_numbers(world: World) -> None:
    spec = dataset_spec(label={**LABEL, "classes": ["7", "3"]})
    world.write("a.csv", HEADER + "2020-01-02,1,3\n2020-01-03,2,7\n")
    world.write("b.csv", HEADER + "2020-01-02,1,5\n")
    summary = world.run_import(spec)
    assert [row[2] for row in world.rows(spec)] == [1, 0]
    assert "unknown class '5'; the dataset's classes are '7', '3'" in str(summary.failed[0][1])


def test_dtypes_are_settled_by_all_files_of_the_first_batch_and_then_fixed(world: World) -> None:
    spec = dataset_spec(batches={"kind": "directory"})
    for name, cells in {"a/1": "1", "a/2": "2.5", "b/1": "3", "c/1": "x", "c/2": "3"}.items():
        world.write(f"{name}.csv", f"{HEADER}2020-01-01,{cells},0\n")
        world.write(f"{name[0]}/_READY", "")
    summary = world.run_import(spec)
    assert world.dataset(spec).columns == (Column("time", "string"), Column("x", "float64"), Column("label", "int64"))
    [(key, error)] = summary.failed
    assert (key, isinstance(error, SchemaMismatch)) == ("c", True)
    assert "expected x float64, found x string" in str(error)


def test_dtypes_are_pinned_by_the_spec_and_by_the_role_of_a_column(world: World) -> None:
    pinned = {"kind": "csv", "columns": {"x": "string"}}
    spec = dataset_spec(
        format=pinned,
        time={"source": "column", "column": "time", "format": "%Y"},
        label={"kind": "target", "from": {"source": "column", "column": "label"}},
    )
    world.write("a.csv", HEADER + "2020,1,0\n")
    world.run_import(spec)
    assert world.dataset(spec).columns == (Column("time", "string"), Column("x", "string"), Column("label", "float64"))
    assert world.rows(spec)[0][3] == 0.0


@pytest.mark.parametrize(
    ("fields", "column"),
    [
        ({"time": {"source": "column", "column": "when"}}, "when"),
        ({"label": {"from": {"source": "column", "column": "y"}}}, "y"),
        ({"attributes": ["z"]}, "z"),
        ({"format": {"kind": "csv", "columns": {"q": "int64"}}}, "q"),
    ],
    ids=str,
)
def test_a_column_that_the_spec_names_must_be_there(world: World, fields: Any, column: str) -> None:
    world.write("a.csv", HEADER + "2020-01-01,1,0\n")
    [(_, error)] = world.run_import(dataset_spec(**fields)).failed
    assert isinstance(error, DataError)
    assert (error.column, world.dataset(dataset_spec(**fields)).columns) == (column, None)
    assert "it has time, x, label" in str(error)


def test_every_source_of_time_is_read(world: World) -> None:
    world.write("x_20200305.csv", "label\n1\n0\n", mtime=1_600_000_000.25)
    expected = {"file_name": datetime(2020, 3, 5, tzinfo=UTC), "mtime": datetime(2020, 9, 13, 12, 26, 40, 250_000, tzinfo=UTC)}
    for source, moment in expected.items():
        time: dict[str, Any] = {"source": source}
        if source == "file_name":
            time |= {"pattern": r"_(?P<time>\d+)\.csv$", "format": "%Y%m%d"}
        spec = dataset_spec(name=source, time=time)
        world.run_import(spec)
        assert [row[1] for row in world.rows(spec)] == [moment, moment]


def test_a_manifest_gives_times_to_files_of_rows(world: World) -> None:
    spec = dataset_spec(time={"source": "manifest", "column": "t"}, batches={"kind": "manifest"})
    world.write("in/1.csv", "x,label\n1,0\n2,1\n")
    world.write("in/2.csv", "x,label\n3,0\n")
    world.write("m.manifest.csv", "t,file\n1000,in/1.csv\n999.5,in/2.csv\n")
    world.write("m.manifest.csv_READY", "")
    world.run_import(spec)
    rows = world.rows(spec)
    assert [row[1].timestamp() for row in rows] == [999.5, 1000.0, 1000.0]
    assert world.reader(spec).read(world.keys(spec)).columns["x"].tolist() == [3, 1, 2]


def test_a_path_belongs_to_one_batch_and_equal_bytes_may_come_under_another(world: World) -> None:
    spec = dataset_spec(batches={"kind": "manifest"})
    text = HEADER + "2020-01-01,1,0\n"
    for name in ("1", "2"):
        world.write(f"{name}.csv", text)
    for name, files in {"a": ["1.csv"], "b": ["2.csv", "./1.csv"], "c": ["2.csv"]}.items():
        world.write(f"{name}.manifest.csv", "file\n" + "\n".join(files) + "\n")
        world.write(f"{name}.manifest.csv_READY", "")
    [(key, error)] = world.run_import(spec).failed
    assert (key, type(error)) == ("b", DuplicateFile)
    assert "1.csv: duplicate file, it already belongs to batch 'a'" in str(error)
    assert world.states(spec) == {"a": "ingested", "b": "failed", "c": "ingested"}


def test_parquet_becomes_rows_of_a_shard_and_its_original_may_go(world: World) -> None:
    spec = dataset_spec(format={"kind": "parquet"}, attributes=["s"])
    times = pa.array([datetime(2020, 1, 2), datetime(2020, 1, 1)], pa.timestamp("ms"))
    table = pa.table({"time": times, "x": [1.5, 2.5], "s": ["one", "two"], "label": [0, 1]})
    pq.write_table(table, world.root / "a.parquet")
    world.run_import(spec)
    (world.root / "a.parquet").unlink()
    found = world.reader(spec).read(world.keys(spec)[[1, 0, 1]])
    assert found.columns["s"].tolist() == ["one", "two", "one"]
    assert found.columns["x"].tolist() == [1.5, 2.5, 1.5]
    assert found.columns["time"].tolist() == [datetime(2020, 1, 2), datetime(2020, 1, 1), datetime(2020, 1, 2)]
    assert [row[4] for row in world.rows(spec)] == [{"s": "two"}, {"s": "one"}]
    assert set(world.files()) == {"batches/d/0.arrow", "shards/d/0.bin"}
    assert world.ingest(spec, "a").already_ingested


def test_fixed_rows_stay_in_place_as_one_extent(world: World) -> None:
    fields = [["t", "<i8"], ["x", "(3,)<f4"], ["y", "u1"]]
    spec = dataset_spec(
        format={"kind": "fixed_rows", "dtype": fields, "header_bytes": 4},
        time={"source": "column", "column": "t", "unit": "ms"},
        label={"from": {"source": "column", "column": "y"}},
    )
    records = np.zeros(1000, dtype=[(name, code) for name, code in fields])
    records["t"], records["x"], records["y"] = np.arange(1000), np.arange(3000).reshape(1000, 3), np.arange(1000) % 5
    world.write("a.bin", b"HEAD" + records.tobytes())
    world.run_import(spec)
    order = np.random.default_rng(0).permutation(1000)
    found = world.reader(spec).read(world.keys(spec)[order])
    np.testing.assert_array_equal(found.columns["x"], records["x"][order])
    assert found.labels is not None
    np.testing.assert_array_equal(found.labels, records["y"][order])
    np.testing.assert_array_equal(found.times, records["t"][order].astype("datetime64[ms]"))
    # Times and labels, one extent, one file: far less than an extent per row would take.
    assert len(world.files()["batches/d/0.arrow"]) < 1000 * 16 + 4096
    assert world.dataset(spec).columns == (Column("t", "<i8"), Column("x", "(3,)<f4"), Column("y", "|u1"))


def test_jsonl_is_ingested_like_csv(world: World) -> None:
    spec = dataset_spec(format={"kind": "jsonl"})
    rows = [{"time": f"2020-01-0{9 - i}", "x": f'a"{i}\n', "label": i % 2} for i in range(5)]
    world.write("a.jsonl", "".join(json.dumps(row) + "\r\n" for row in rows))
    world.run_import(spec)
    found = world.reader(spec).read(world.keys(spec))
    assert found.columns["x"].tolist() == [row["x"] for row in reversed(rows)]
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1, 0, 1, 0]
