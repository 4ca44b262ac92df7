from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import fsspec
import pytest

from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.registration import register_ready_batches
from modyn_dagster.ingestion.sources.local import LocalSource
from modyn_dagster.ingestion.sources.source import RemoteSource, open_source
from tests.ingestion.world import World, dataset_spec

URL = "memory://bucket/data"


@pytest.fixture
def remote() -> Iterator[Any]:
    store = fsspec.filesystem("memory")
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


def put(store: Any, name: str, content: str) -> None:
    store.pipe_file(f"/bucket/data/{name}", content.encode())


def test_rows_of_a_store_are_copied_into_a_shard_in_key_order(world: World, remote: Any) -> None:
    spec = dataset_spec(root=URL, batches={"kind": "file", "pattern": "**/*.csv"})
    put(remote, "a/1.csv", 'time,x,label\r\n2020-01-02,"a\nb",1\r\n2020-01-01,c,0\r\n')
    put(remote, "2.csv", "time,x,label\n2020-01-03,d,1\n")
    put(remote, "2.csv.part", "not yet")
    summary = world.run_import(spec, root=URL)
    assert [result.partition_key for result in summary.ingested] == ["2", "a/1"]
    remote.rm("/bucket/data", recursive=True)
    found = world.reader(spec, URL).read(world.keys(spec)[[2, 0, 1]])
    assert found.columns["x"].tolist() == ["a\nb", "d", "c"]
    assert world.files()["shards/d/1.bin"] == b'2020-01-01,c,02020-01-02,"a\nb",1'


def test_slices_of_a_store_share_no_bytes(world: World, remote: Any) -> None:
    spec = dataset_spec(root=URL)
    for name in ("1", "2"):
        put(remote, f"{name}.csv", "time,x,label\n" + "".join(f"2020-01-0{day},{name}{day},0\n" for day in (3, 1, 2)))
    world.run_import(spec, "count:4", root=URL)
    assert world.reader(spec, URL).read(world.keys(spec)).columns["x"].tolist() == [11, 21, 12, 22, 13, 23]
    assert sum(len(content) for path, content in world.files().items() if path.startswith("shards")) == 6 * len("2020-01-01,11,0")


def test_fixed_rows_and_parquet_and_files_come_from_a_store_too(world: World, remote: Any) -> None:
    files = dataset_spec(
        name="files",
        format={"kind": "files", "suffixes": [".png"]},
        batches={"kind": "directory"},
        time={"source": "mtime"},
        label={"from": {"source": "folder"}},
    )
    put(remote, "day/cat/1.png", "meow")
    put(remote, "day/_READY", "")
    world.run_import(files, root=URL)
    found = world.reader(files, URL).read(world.keys(files))
    assert (found.blobs, abs((found.times[0].item().replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()) < 60) == (
        [b"meow"],
        True,
    )
    fixed = dataset_spec(
        name="fixed",
        format={"kind": "fixed_rows", "dtype": [["t", "<i4"], ["y", "<i4"]]},
        batches={"kind": "file", "pattern": "*.bin"},
        time={"source": "column", "column": "t"},
        label={"from": {"source": "column", "column": "y"}},
    )
    remote.pipe_file("/bucket/data/r.bin", b"".join(i.to_bytes(4, "little") for i in (9, 1, 3, 2)))
    world.run_import(fixed, root=URL)
    assert world.reader(fixed, URL).read(world.keys(fixed)).columns["y"].tolist() == [2, 1]
    assert world.files()["shards/fixed/0.bin"] == b"".join(i.to_bytes(4, "little") for i in (3, 2, 9, 1))


def test_a_store_is_looked_at_twice_like_a_folder(world: World, remote: Any) -> None:
    spec = dataset_spec(root=URL)
    put(remote, "a.csv", "time,x,label\n2020-01-03,d,1\n")
    first = register_ready_batches(world.engine, spec, URL, None, 4e9)
    put(remote, "a.csv", "time,x,label\n2020-01-03,dd,1\n")
    second = register_ready_batches(world.engine, spec, URL, first.state, 4e9)
    third = register_ready_batches(world.engine, spec, URL, second.state, 4e9)
    assert [[batch.partition_key for batch in look.registered] for look in (first, second, third)] == [[], [], ["a"]]


@pytest.mark.parametrize("path", ["../other/x", "/bucket/other/x", "a/../../x"])
def test_a_path_out_of_the_store_is_refused(remote: Any, path: str) -> None:
    remote.pipe_file("/bucket/other/x", b"secret")
    source = open_source(URL, {})
    for call in (source.load, source.state, source.folder):
        with pytest.raises(DataError, match="outside the dataset's root"):
            call(path)


def test_what_is_not_there_is_named(remote: Any) -> None:
    put(remote, "d/x", "1")
    source = open_source(URL, {})
    with pytest.raises(DataError, match="nothing: does not exist"):
        source.load("nothing")
    with pytest.raises(DataError, match="d: is a directory"):
        source.load("d")


@pytest.mark.parametrize(
    ("root", "kind"), [("/data", LocalSource), ("file:///data", LocalSource), ("local:///data", LocalSource), (URL, RemoteSource)]
)
def test_only_other_urls_than_of_local_files_are_copied(root: str, kind: type[object]) -> None:
    source = open_source(root, {})
    assert isinstance(source, kind)
    assert source.in_place == (kind is LocalSource)
