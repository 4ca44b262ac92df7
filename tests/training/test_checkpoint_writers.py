"""Two writers of one checkpoint: a training, and a worker that was given up and still writes."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from modyn_dagster.durability.names import temporary_name
from modyn_dagster.errors import WriteFailed
from modyn_dagster.storage import atomic_file, sweep_unfinished
from modyn_dagster.training import CheckpointFile

STATE = {"weights": torch.arange(50_000.0)}


def test_another_writer_that_removes_the_checkpoint_leaves_a_file_that_is_being_written(tmp_path: Path) -> None:
    mine, theirs = CheckpointFile(tmp_path / "c"), CheckpointFile(tmp_path / "c")
    with atomic_file(mine.path) as file:
        file.write(b"half of it")
        theirs.remove()
        file.write(b", and the rest")
    assert mine.path.read_bytes() == b"half of it, and the rest"
    theirs.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def nfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks as NFS grants them: a shared one to descriptors that can read, an exclusive one to those that can write."""
    flock = fcntl.flock

    def emulated(descriptor: int, operation: int) -> None:
        access = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        if access == (os.O_WRONLY if operation & fcntl.LOCK_SH else os.O_RDONLY):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(descriptor, operation)

    monkeypatch.setattr("fcntl.flock", emulated)


@pytest.mark.usefixtures("nfs")
def test_a_sweep_on_nfs_leaves_a_file_that_is_being_written(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "c") as file:
        file.write(b"half of it")
        sweep_unfinished([tmp_path / "c"])
        file.write(b", and the rest")
    assert (tmp_path / "c").read_bytes() == b"half of it, and the rest"
    temporary_name(tmp_path / "c").write_bytes(b"left")
    sweep_unfinished([tmp_path / "c"])
    assert list(tmp_path.iterdir()) == [tmp_path / "c"]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.EIO], ids=errno.errorcode.get)
def test_a_sweep_that_cannot_look_at_a_file_leaves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def failing(path: Path, flags: int) -> int:
        raise OSError(number, os.strerror(number))

    with atomic_file(tmp_path / "c") as file:
        file.write(b"half of it")
        with monkeypatch.context() as during:
            during.setattr("os.open", failing)
            sweep_unfinished([tmp_path / "c"])
        file.write(b", and the rest")
    assert (tmp_path / "c").read_bytes() == b"half of it, and the rest"


def test_a_file_system_without_locks_takes_files_and_one_that_fails_to_lock_refuses_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(number: int) -> None:
        def fail(descriptor: int, operation: int) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr("fcntl.flock", fail)

    failing(errno.ENOLCK)
    with atomic_file(tmp_path / "c") as file:
        file.write(b"all of it")
    failing(errno.EIO)
    with pytest.raises(WriteFailed, match="Input/output error"), atomic_file(tmp_path / "c"):
        raise AssertionError("it must not be written without a lock")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("c", b"all of it")]


def test_checkpoints_are_written_while_another_writer_removes_them_all_the_time(tmp_path: Path) -> None:
    file, over = CheckpointFile(tmp_path / "c"), threading.Event()

    def remove() -> None:
        while not over.is_set():
            CheckpointFile(file.path).remove()

    thread = threading.Thread(target=remove)
    thread.start()
    try:
        for _ in range(100):
            file.save("fingerprint", STATE)
    finally:
        over.set()
        thread.join()
    file.save("fingerprint", STATE)
    state = file.load("fingerprint")
    assert state is not None
    assert torch.equal(state["weights"], STATE["weights"])


def test_what_a_writer_left_before_it_could_lock_it_is_removed(tmp_path: Path) -> None:
    temporary_name(tmp_path / "c").write_bytes(b"left")
    CheckpointFile(tmp_path / "c").remove()
    assert list(tmp_path.iterdir()) == []


PROGRAM = """
import sys
from pathlib import Path
from modyn_dagster.storage import atomic_file
with atomic_file(Path(sys.argv[1])) as file:
    file.write(b"half of it")
    file.flush()
    print("writes", flush=True)
    sys.stdin.read()
"""


@pytest.mark.process
def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "c")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        CheckpointFile(tmp_path / "c").remove()
        assert len(list(tmp_path.iterdir())) == 1
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    CheckpointFile(tmp_path / "c").remove()
    assert list(tmp_path.iterdir()) == []
