"""Packing: bounded memory whatever the folder's size, files that change meanwhile, files at the threshold."""

import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.batches import piece
from modyn_dagster.ingestion.batches.piece import SmallFiles
from modyn_dagster.ingestion.sources.files import FileVersion
from modyn_dagster.ingestion.sources.local import LocalSource
from tests.ingestion.world import World, dataset_spec

FILES = {"kind": "files", "suffixes": [".bin"]}


def spec_of(**fields: Any) -> Any:
    content: dict[str, Any] = {
        "format": FILES,
        "batches": {"kind": "directory"},
        "time": {"source": "mtime"},
        "label": None,
    }
    return dataset_spec(**content | fields)


def files_of(folder: Path, contents: list[bytes]) -> tuple[SmallFiles, dict[str, FileVersion]]:
    paths = [f"{i}.bin" for i in range(len(contents))]
    for path, content in zip(paths, contents):
        (folder / path).write_bytes(content)
    source = LocalSource(folder)
    versions: dict[str, FileVersion] = {}
    return SmallFiles(source, paths, [source.state(path) for path in paths], versions.__setitem__), versions


NONE = np.empty(0, dtype=np.int64)


def test_files_come_in_the_order_asked_for_with_their_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece, "GROUP_BYTES", 50)
    monkeypatch.setattr(piece, "GROUP_FILES", 7)
    rng = np.random.default_rng(0)
    contents = [rng.bytes(int(size)) for size in rng.integers(1, 60, 100)]
    files, versions = files_of(tmp_path, contents)
    order = rng.permutation(100)[:80]
    besides = np.setdiff1d(np.arange(100), order)
    assert [data.tobytes() for data in files.read(order, besides)] == [contents[i] for i in order]
    source = LocalSource(tmp_path)
    assert versions == {path: source.load(path).version for path in files.paths}


def test_memory_does_not_grow_with_the_number_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piece, "GROUP_BYTES", 200_000)
    files, _ = files_of(tmp_path, [b"x" * 100_000] * 100)
    tracemalloc.start()
    try:
        total = sum(len(data) for data in files.read(np.arange(100), NONE))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total == 10_000_000
    assert peak < 4_000_000


@pytest.mark.parametrize("change", ["longer", "other bytes", "gone"])
def test_a_file_that_changes_before_it_is_packed_is_named(tmp_path: Path, change: str) -> None:
    files, _ = files_of(tmp_path, [b"abc", b"def"])
    target = tmp_path / "1.bin"
    if change == "gone":
        target.unlink()
    else:
        target.write_bytes(b"defg" if change == "longer" else b"xyz")
        os.utime(target, (1, 1))
    with pytest.raises(DataError, match=r"1\.bin: (changed while it was read|does not exist)"):
        list(files.read(np.arange(2), NONE))


def test_a_batch_whose_file_changes_while_it_is_packed_fails_and_leaves_no_shard(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of()
    for i in range(3):
        world.write(f"d/{i}.bin", f"content {i}", mtime=1e9 + i)
    world.write("d/_READY", "")
    world.register_all(spec)
    load = LocalSource.load

    def load_late(source: LocalSource, path: str) -> Any:
        if path == "d/2.bin":
            world.write(path, "later", mtime=2e9)
        return load(source, path)

    monkeypatch.setattr(LocalSource, "load", load_late)
    with pytest.raises(DataError, match=r"d/2\.bin: changed while it was read"):
        world.ingest(spec, "d")
    assert (world.states(spec), world.files(), world.rows(spec)) == ({"d": "failed"}, {}, [])


def test_a_threshold_of_0_packs_nothing_and_may_change_later(world: World) -> None:
    spec = spec_of(format=FILES | {"packed_bytes": 0})
    for name in ("one", "two"):
        world.write(f"{name}/a.bin", name)
        world.write(f"{name}/_READY", "")
    world.register_all(spec)
    world.ingest(spec, "one")
    assert list(world.files()) == ["batches/d/0.arrow"]
    packing = spec_of(format=FILES)
    world.ingest(packing, "two")
    assert world.files()["shards/d/1.bin"] == b"two"
    assert world.reader(packing).read_blobs(world.keys(packing)) == [b"one", b"two"]
    assert world.ingest(packing, "one").already_ingested


def test_files_that_stay_are_compared_with_what_they_were(world: World) -> None:
    spec = spec_of(format=FILES | {"packed_bytes": 3})
    world.write("d/large.bin", b"l" * 3_000_000, mtime=1e9)
    world.write("d/small.bin", b"s", mtime=1e9)
    world.write("d/_READY", "")
    world.register_all(spec)
    world.ingest(spec, "d")
    assert world.ingest(spec, "d").already_ingested
    world.write("d/large.bin", b"l" * 2_999_999 + b"L", mtime=1e9)
    with pytest.raises(DataError, match=r"d/large\.bin"):
        world.ingest(spec, "d")
