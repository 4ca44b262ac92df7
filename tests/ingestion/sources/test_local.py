"""Files of a local root: what may be read, and what is refused however its path is written."""

import os
from pathlib import Path

import pytest

from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.sources.files import FileState
from modyn_dagster.ingestion.sources.local import LocalSource


@pytest.fixture
def source(tmp_path: Path) -> LocalSource:
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/f").write_bytes(b"inside")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/f").write_bytes(b"outside")
    (root / "a/link").symlink_to(root / "a/b/f")
    (root / "a/folder").symlink_to(root / "a/b")
    (root / "a/leaving").symlink_to(tmp_path / "secret/f")
    (root / "a/leaving_folder").symlink_to(tmp_path / "secret")
    (root / "a/loop").symlink_to(root / "a/loop")
    os.mkfifo(root / "a/pipe")
    return LocalSource(root)


@pytest.mark.parametrize("path", ["a/b/f", "a/link", "a/folder/f", "./a/b/f", "a//b/f", "a/b/../b/f"])
def test_a_file_below_the_root_is_read_whatever_leads_to_it(source: LocalSource, path: str) -> None:
    for _ in range(2):  # the second time its folder is known
        loaded = source.load(path)
        assert loaded.data.tobytes() == b"inside"
        assert loaded.version == source.version(path)
        assert source.state(path) == loaded.state == FileState(6, (source.root / "a/b/f").stat().st_mtime_ns)


REFUSED = {
    "a/leaving": "outside the dataset's root",
    "a/leaving_folder/f": "outside the dataset's root",
    "../secret/f": "outside the dataset's root",
    "a/../../secret/f": "outside the dataset's root",
    "/etc/passwd": "outside the dataset's root",
    "/a": "outside the dataset's root",
    "a": "is a directory",
    "a/": "is a directory",
    "a/b/..": "is a directory",
    "": "is a directory",
    "a/none": "does not exist",
    "none/f": "does not exist",
    "a/b/f/g": "does not exist",
    "a/loop": "loop of symlinks",
    "a/pipe": "not a regular file",
    "a/\0": "is not a path",
    "a/" + "x" * 300: "too long a name",
}


@pytest.mark.parametrize("path", REFUSED)
def test_anything_else_is_refused_saying_why(source: LocalSource, path: str) -> None:
    for ask in (source.state, source.load, source.version):
        with pytest.raises(DataError, match=REFUSED[path]) as caught:
            ask(path)
        assert caught.value.file == path


def test_a_folder_lists_every_file_below_it_once(source: LocalSource) -> None:
    (source.root / "a/b/c").mkdir()
    (source.root / "a/b/c/g").write_bytes(b"")
    found = ["a/b/c/g", "a/b/f", "a/leaving", "a/link", "a/loop", "a/pipe"]
    assert sorted(path for path in source.folder("a")) == found
    assert sorted(source.folder("a/b")) == ["a/b/c/g", "a/b/f"]
