import os
from pathlib import Path
from typing import Any

import pytest

from modyn_dagster.errors import StorageError
from modyn_dagster.ingestion.discovery import Discovery, discover_ready
from modyn_dagster.ingestion.sources.local import LocalSource
from tests.ingestion.world import dataset_spec

NOW = 1_000_000.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


def put(root: Path, name: str, content: str = "x", age: float = 100) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, (NOW - age, NOW - age))
    return path


def look(
    root: Path, before: Discovery | None = None, now: float = NOW, known: set[str] | None = None, **fields: Any
) -> Discovery:
    file_states = before.file_states if before else None
    return discover_ready(LocalSource(root), dataset_spec(**fields), known=known or set(), file_states=file_states, now=now)


def keys(found: Discovery) -> list[str]:
    return [item.partition_key for item in found.announcements]


def test_a_file_is_ready_when_two_looks_saw_the_same(root: Path) -> None:
    put(root, "a.csv")
    first = look(root)
    assert (keys(first), first.waiting) == ([], ["a.csv"])
    second = look(root, first)
    assert (keys(second), second.waiting, second.file_states) == (["a"], [], {})
    assert second.announcements[0].source == {"paths": ["a.csv"]}


def test_a_file_that_grows_or_is_touched_is_left_for_the_next_look(root: Path) -> None:
    put(root, "a.csv")
    first = look(root)
    put(root, "a.csv", "xx")
    second = look(root, first)
    put(root, "a.csv", "xy", age=99)
    third = look(root, second)
    assert [keys(found) for found in (first, second, third, look(root, third))] == [[], [], [], ["a"]]


def test_a_file_written_just_now_is_left_for_the_next_look(root: Path) -> None:
    put(root, "a.csv", age=0.5)
    first = look(root)
    assert keys(look(root, first, now=NOW + 0.4)) == []
    assert keys(look(root, first, now=NOW + 0.6)) == ["a"]
    assert keys(look(root, first, batches={"kind": "file", "quiet_seconds": 0.1})) == ["a"]
    assert keys(look(root, first, now=NOW + 5, batches={"kind": "file", "quiet_seconds": 10})) == []


def test_a_clock_that_is_ahead_does_not_hold_a_file_back(root: Path) -> None:
    put(root, "a.csv", age=-3600)
    assert keys(look(root, look(root))) == ["a"]


@pytest.mark.parametrize("name", ["a.csv.tmp", "a.csv.part", "a.crdownload", "a.csv~", ".a.csv", ".hidden/a.csv"])
def test_hidden_and_temporary_names_are_never_announced(root: Path, name: str) -> None:
    put(root, name)
    found = look(root, look(root, batches={"kind": "file", "pattern": "**/*"}), batches={"kind": "file", "pattern": "**/*"})
    assert (found.announcements, found.waiting) == ([], [])


def test_several_ready_at_once_come_in_natural_order_of_their_path(root: Path) -> None:
    for name in ("b.csv", "a_10.csv", "a_9.csv", "sub/z.csv", "sub/1.csv"):
        put(root, name)
    batches = {"kind": "file", "pattern": "**/*.csv"}
    assert keys(look(root, look(root, batches=batches), batches=batches)) == ["a_9", "a_10", "b", "sub/1", "sub/z"]


def test_folders_are_no_files_and_known_paths_nothing_new(root: Path) -> None:
    put(root, "a.csv")
    put(root, "b.csv/c.csv")
    found = look(root, look(root), known={"a.csv"})
    assert (found.announcements, found.waiting) == ([], [])


def test_a_broken_symlink_is_announced_so_that_its_batch_can_say_so(root: Path) -> None:
    (root / "a.csv").symlink_to(root / "nowhere")
    (root / "b.csv").symlink_to(root.parent)
    (root / "c.csv").symlink_to(root / "c.csv")
    assert keys(look(root)) == ["a", "c"]


def test_a_partition_key_holds_nothing_that_dagster_refuses(root: Path) -> None:
    put(root, "a\n...b.csv")
    assert keys(look(root, look(root))) == ["a__b"]


def test_a_directory_is_ready_with_its_ready_file(root: Path) -> None:
    put(root, "day.1/x.csv", age=0)
    put(root, "2/3/x.csv", age=0)
    batches = {"kind": "directory", "ready": "DONE"}
    assert keys(look(root, batches=batches)) == []
    put(root, "day.1/DONE")
    put(root, "2/3/DONE")
    put(root, "DONE")
    found = look(root, batches=batches)
    assert keys(found) == ["2/3", "day.1"]
    assert [item.source for item in found.announcements] == [{"paths": ["2/3"]}, {"paths": ["day.1"]}]


def test_a_manifest_is_ready_with_its_ready_file(root: Path) -> None:
    put(root, "may.manifest.csv", age=0)
    assert keys(look(root, batches={"kind": "manifest"})) == []
    put(root, "may.manifest.csv_READY")
    found = look(root, batches={"kind": "manifest"})
    assert [(item.partition_key, item.source) for item in found.announcements] == [("may", {"paths": ["may.manifest.csv"]})]


def test_a_root_that_is_not_there_is_no_empty_dataset(root: Path) -> None:
    with pytest.raises(StorageError, match="nowhere: the root of the dataset is not a folder"):
        look(root / "nowhere")
