import contextlib
import io
import itertools
from typing import Any

import numpy as np
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.datasets import sample
from modyn_dagster.errors import ConfigError, DataError
from modyn_dagster.ingestion.history import ImportProgress, import_history
from modyn_dagster.keys import key_of
from tests.ingestion.world import LABEL, World, dataset_spec

SPEC = dataset_spec()


def table(days: list[int], first: int = 0) -> str:
    rows = "".join(f"2020-01-{day:02d},{first + i},{day % 2}\n" for i, day in enumerate(days))
    return f"time,x,label\n{rows}"


def scattered(world: World) -> list[int]:
    """Three files whose times overlap; returns ``x`` in the order of the stream."""
    rng = np.random.default_rng(0)
    days = {name: rng.integers(1, 29, 40).tolist() for name in ("2", "10", "sub/1")}
    for number, (name, values) in enumerate(days.items()):
        world.write(f"{name}.csv", table(values, 100 * number))
    paths = ["2", "10", "sub/1"]
    rows = [(day, paths.index(name), i, 100 * paths.index(name) + i) for name in paths for i, day in enumerate(days[name])]
    return [row[3] for row in sorted(rows)]


class Interrupted(Exception):
    pass


def interrupt_after(batches: int) -> ImportProgress:
    def progress(done: int, total: int, outcome: object) -> None:
        if done == batches:
            raise Interrupted

    return progress


DEEP: dict[str, Any] = {"batches": {"kind": "file", "pattern": "**/*.csv"}}


def stream(world: World, spec: Any) -> list[int]:
    values: list[int] = world.reader(spec).read(world.keys(spec)).columns["x"].tolist()
    return values


def test_history_by_file_comes_in_natural_order(world: World) -> None:
    for name in ("10", "9", "1"):
        world.write(f"{name}.csv", table([3, 1, 2]))
    calls: list[tuple[int, int, bool]] = []

    def progress(done: int, total: int, outcome: object) -> None:
        calls.append((done, total, isinstance(outcome, Exception)))

    summary = import_history(world.engine, world.home, SPEC, str(world.root), progress=progress)
    assert [result.partition_key for result in summary.ingested] == ["1", "9", "10"]
    assert (summary.n_samples, summary.failed, calls) == (9, [], [(1, 3, False), (2, 3, False), (3, 3, False)])


@pytest.mark.parametrize("by", ["count:50", "time:7d"])
def test_history_is_cut_over_the_sorted_whole(world: World, by: str) -> None:
    expected = scattered(world)
    spec = dataset_spec(**DEEP)
    summary = world.run_import(spec, by)
    assert stream(world, spec) == expected
    keys = [result.partition_key for result in summary.ingested]
    assert keys == {"count:50": ["part_1", "part_2", "part_3"], "time:7d": keys}[by]
    assert world.run_import(spec, by).ingested == []
    assert world.run_import(spec).ingested == []
    assert all(world.ingest(spec, key).already_ingested for key in keys)


def test_a_later_import_takes_only_what_is_new(world: World) -> None:
    world.write("1.csv", table([1, 2]))
    world.run_import(SPEC, "count:1")
    world.write("2.csv", table([1, 3]))
    assert [result.partition_key for result in world.run_import(SPEC, "count:1").ingested] == ["part_1~2", "part_2~2"]
    assert [key >> 32 for key in world.keys(SPEC).tolist()] == [0, 1, 2, 3]


def test_an_import_that_was_interrupted_goes_on_where_it_stopped(world: World) -> None:
    expected = scattered(world)
    spec = dataset_spec(**DEEP)
    with pytest.raises(Interrupted):
        import_history(world.engine, world.home, spec, str(world.root), by="count:20", progress=interrupt_after(2))
    assert list(world.states(spec).values()) == ["ingested"] * 2 + ["open"] * 4
    # Another cut changes nothing: the batches were given when they were registered.
    assert len(world.run_import(spec, "count:7").ingested) == 4
    assert stream(world, spec) == expected


def test_a_bad_file_fails_by_itself_and_the_others_go_on(world: World) -> None:
    for name, text in {
        "1": table([1, 3]),
        "2": table([2]) + "2020-01-05,x,\n",
        "3": "time,y,label\n",
        "4": table([4, 2]),
    }.items():
        world.write(f"{name}.csv", text)
    summary = world.run_import(SPEC, "count:3")
    assert [(result.partition_key, result.n_samples) for result in summary.ingested] == [("part_1", 3), ("part_2", 1)]
    assert [key for key, _ in summary.failed] == ["2", "3"]
    assert world.states(SPEC) == {"part_1": "ingested", "part_2": "ingested", "2": "failed", "3": "failed"}
    assert stream(world, SPEC) == [0, 1, 1, 0]


def test_dtypes_of_slices_are_settled_by_all_files_together(world: World) -> None:
    world.write("1.csv", "time,x,label\n2020-01-01,1,0\n2020-01-02,2,0\n")
    world.write("2.csv", "time,x,label\n2020-01-03,2.5,0\n")
    summary = world.run_import(SPEC, "count:1")
    assert summary.failed == []
    assert stream(world, SPEC) == [1.0, 2.0, 2.5]


def test_nothing_is_settled_by_files_that_are_all_bad(world: World) -> None:
    world.write("1.csv", "time,x,label\n2020-01-01,1,\n")
    assert [key for key, _ in world.run_import(SPEC, "time:1d").failed] == ["1"]
    assert world.dataset(SPEC).columns is None


def test_files_beside_their_labels_are_cut_without_being_read_twice(world: World) -> None:
    spec = dataset_spec(
        format={"kind": "files", "suffixes": [".txt"]},
        batches={"kind": "directory"},
        time={"source": "file_name", "pattern": r"(?P<time>\d+)\.txt", "format": "%Y%m%d"},
        label={"from": {"source": "folder"}},
    )
    for batch, (folder, day) in itertools.product("ab", zip(["cat", "dog", "cat"], [3, 1, 2])):
        world.write(f"{batch}/{folder}/2020010{day}.txt", f"{batch}{day}")
    for batch in "ab":
        world.write(f"{batch}/_READY", "")
    assert world.run_import(spec, "count:4").failed == []
    keys = world.keys(spec)
    assert keys.tolist() == [*(key_of(0, i) for i in range(4)), *(key_of(1, i) for i in range(2))]
    found = world.reader(spec).read(keys)
    assert found.blobs == [b"a1", b"b1", b"a2", b"b2", b"a3", b"b3"]
    assert found.labels is not None
    assert [world.dataset(spec).class_names[label] for label in found.labels] == ["dog", "dog", "cat", "cat", "cat", "cat"]


def test_a_file_in_two_manifests_of_one_import_belongs_to_the_first(world: World) -> None:
    spec = dataset_spec(batches={"kind": "manifest"})
    world.write("1.csv", table([1]))
    for name in "ab":
        world.write(f"{name}.manifest.csv", "file\n1.csv\n")
        world.write(f"{name}.manifest.csv_READY", "")
    summary = world.run_import(spec, "count:10")
    assert [result.n_samples for result in summary.ingested] == [1]
    [(key, error)] = summary.failed
    assert key == "b"
    assert "1.csv: duplicate file, it already belongs to batch 'part_1'" in str(error)


def test_another_way_to_cut_is_refused_before_anything_is_done(world: World) -> None:
    with pytest.raises(ConfigError, match="must be file, time:<duration>"):
        world.run_import(SPEC, "week")


def test_a_slice_whose_file_lost_its_rows_fails(world: World) -> None:
    world.write("1.csv", table([1, 2, 3]))
    with pytest.raises(Interrupted):
        import_history(world.engine, world.home, SPEC, str(world.root), by="count:2", progress=interrupt_after(1))
    world.write("1.csv", table([1, 2]))
    [(key, error)] = world.run_import(SPEC).failed
    assert (key, isinstance(error, DataError)) == ("part_2", True)
    assert "no longer holds a sample of this slice" in str(error)


def batch_rows(world: World, spec: Any) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], Any]:
    """Batches, samples and classes of a dataset, without ids and moments."""
    dataset = world.dataset(spec)
    facts = [
        (b.ordinal, b.partition_key, b.state, b.error, b.n_samples, b.label_counts, b.index_checksum, b.content_checksum)
        for b in world.batches(spec)
    ]
    columns = [sample.c.key, sample.c.time, sample.c.label, sample.c.attributes]
    with world.engine.connect() as conn:
        rows = conn.execute(sa.select(*columns).where(sample.c.dataset_id == dataset.id).order_by(sample.c.key))
        return facts, [tuple(row) for row in rows], (dataset.class_names, dataset.columns)


def transactions(world: World, spec: Any) -> list[int]:
    """Number of batches that each transaction ingested, in their order."""
    statement = sa.text("select xmin::text from batch where dataset_id = :id and state = 'ingested' order by ordinal")
    with world.engine.connect() as conn:
        ids = conn.execute(statement, {"id": world.dataset(spec).id}).scalars().all()
    return [len(list(group)) for _, group in itertools.groupby(ids)]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_small_batches_go_together_and_bad_ones_alone(world: World, kind: str) -> None:
    for number in range(8):
        text = "x,label,time,who\n" + "".join(
            f"{i},c{(i + number) % 5},2020-01-{i + 1:02d},é{number}{'o' * i}\n" for i in range(9)
        )
        if kind == "csv":
            world.write(f"{number}.csv", text)
        else:
            pq.write_table(pv.read_csv(io.BytesIO(text.encode())), world.root / f"{number}.parquet")
    world.write(f"5.{kind}", "not even\0a table")
    content: dict[str, Any] = {"format": {"kind": kind}, "attributes": ["who"], "label": {**LABEL, "kind": "class"}}
    content["batches"] = {"kind": "file", "pattern": f"*.{kind}"}
    together, alone = dataset_spec(**content), dataset_spec(name="alone", **content)
    summary = world.run_import(together)
    assert [result.partition_key for result in summary.ingested] == ["0", "1", "2", "3", "4", "6", "7"]
    assert [key for key, _ in summary.failed] == ["5"]
    # The first batch resolves the columns.
    assert transactions(world, together) == [1, 4, 2]
    for batch in world.register_all(alone):
        with contextlib.suppress(DataError):
            world.ingest(alone, batch.partition_key)
    assert transactions(world, alone) == [1] * 7
    assert batch_rows(world, together) == batch_rows(world, alone)
