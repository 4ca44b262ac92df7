"""Durable names: folders are synced up to the root, as far as the file systems above can be."""

import errno
import os
import posix
from pathlib import Path

import pytest

from modyn_dagster.durability import names
from modyn_dagster.durability.names import durable_folder, sync_folder
from modyn_dagster.storage import linked_copy


def test_folders_above_that_cannot_be_synced_are_none_of_our_making(monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests do not wait for the disk.
    monkeypatch.setattr(os, "fsync", posix.fsync)
    with pytest.raises(OSError, match="Invalid argument") as refused:
        sync_folder(Path("/proc"))
    assert refused.value.errno == errno.EINVAL
    durable_folder(Path("/proc/self"))


def test_a_new_folder_whose_name_cannot_be_made_durable_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(folder: Path) -> None:
        raise OSError(errno.EINVAL, "invalid argument", str(folder))

    monkeypatch.setattr(names, "sync_folder", refuses)
    with pytest.raises(OSError, match="invalid argument"):
        durable_folder(tmp_path / "new")


def test_the_new_folders_of_a_linked_copy_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = list[Path]()
    monkeypatch.setattr(names, "sync_folder", synced.append)
    (tmp_path / "old").write_bytes(b"x")
    linked_copy(tmp_path / "old", tmp_path / "a" / "b" / "new")
    assert [tmp_path, tmp_path / "a"] == synced[-2:]
    assert (tmp_path / "a" / "b" / "new").samefile(tmp_path / "old")
