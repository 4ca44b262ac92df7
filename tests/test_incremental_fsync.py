"""Syncing while writing: what is there afterwards is what was written, and no error of the disk is lost."""

import errno
import os
import threading
from pathlib import Path

import pytest

from modyn_dagster.errors import WriteFailed
from modyn_dagster.storage import atomic_file

MIB = 1 << 20


def write(path: Path, n_pieces: int) -> bytes:
    pieces = [bytes([n]) * MIB for n in range(n_pieces)]
    with atomic_file(path) as file:
        for piece in pieces:
            file.write(piece)
    return b"".join(pieces)


def test_large_files_are_synced_by_another_thread_and_hold_what_was_written(tmp_path, monkeypatch):
    threads: list[str] = []
    monkeypatch.setattr("os.fdatasync", lambda fd: threads.append(threading.current_thread().name))
    content = write(tmp_path / "large", 50)
    assert (tmp_path / "large").read_bytes() == content
    assert threads and all(name.startswith("sync") for name in threads)
    assert not [each for each in threading.enumerate() if each.name.startswith("sync")]
    threads.clear()
    write(tmp_path / "small", 1)
    assert threads == []


@pytest.mark.parametrize("n_pieces", [17, 60])
def test_an_error_of_the_disk_is_raised_though_the_last_sync_says_nothing(tmp_path, monkeypatch, n_pieces):
    def broken(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("os.fdatasync", broken)
    with pytest.raises(WriteFailed, match="Input/output error"):
        write(tmp_path / "file", n_pieces)
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_open_until_its_sync_is_over(tmp_path, monkeypatch):
    synced: list[str] = []

    def slow(fd: int) -> None:
        started.set()
        go_on.wait(10)
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))

    started, go_on = threading.Event(), threading.Event()
    monkeypatch.setattr("os.fdatasync", slow)
    with pytest.raises(KeyError), atomic_file(tmp_path / "file") as file:
        file.write(bytes(20 * MIB))
        started.wait(10)
        threading.Timer(0.1, go_on.set).start()
        raise KeyError
    assert len(synced) == 1 and synced[0].startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
