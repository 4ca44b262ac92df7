"""A save that ends at any step: killed, or refused by the disk. The store stays readable, and ``gc`` removes the rest."""

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modyn_dagster.errors import WriteFailed
from modyn_dagster.model_store import Delta, ModelStore, Snapshot
from tests.model_store.lineages import moved, network
from tests.model_store.states import assert_exact

ROOT = Path(__file__).resolve().parents[2]

#: For each (root, n) of its arguments forks a child that saves, and kills itself before its n-th step that touches the disk.
#: Prints one line per child: its exit status, and what it printed: the model and the number of steps.
SAVER = """
import builtins, io, json, os, signal, sys
repository, strategy, base, jobs = sys.argv[1], sys.argv[2], sys.argv[3] or None, json.loads(sys.argv[4])
sys.path.insert(0, repository)
from modyn_dagster.model_store import ModelStore
from modyn_dagster.incremental_fsync import IncrementalFsyncFile
from tests.model_store.lineages import moved, network
steps, fatal = 0, 0
def step():
    global steps
    steps += 1
    if steps == fatal:
        os.kill(os.getpid(), signal.SIGKILL)
def before(function):
    def run(*args, **kwargs):
        step()
        return function(*args, **kwargs)
    return run
class Counted(io.FileIO):
    def write(self, data):
        step()
        return super().write(data)
def opening(root, real):
    def opened(path, mode="r", *args, **kwargs):
        if "b" in mode and ("w" in mode or "a" in mode) and str(path).startswith(root):
            step()
            return Counted(path, mode.replace("b", ""), opener=kwargs.get("opener"))
        return real(path, mode, *args, **kwargs)
    return opened
def save(root):
    for name in ("fsync", "replace", "unlink", "mkdir"):
        setattr(os, name, before(getattr(os, name)))
    for name in ("__init__", "write"):
        setattr(IncrementalFsyncFile, name, before(getattr(IncrementalFsyncFile, name)))
    builtins.open = opening(root, builtins.open)
    state = network() if base is None else moved(network(), 1)
    return ModelStore(root).save(state, base=base, strategy=strategy)
for root, fatal in jobs:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, f"{save(root)} {steps}".encode())
        os._exit(0)
    os.close(writer)
    said = os.read(reader, 1000).decode()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said)
"""


def saves(strategy: str, base: str, jobs: list[tuple[str, int]]) -> list[list[str]]:
    command = [sys.executable, "-c", SAVER, str(ROOT), strategy, base, json.dumps(jobs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def kill_points(total: int) -> list[int]:
    """The first and last steps, where files begin and names change, and some of the writes between."""
    return sorted({*range(1, min(6, total) + 1), total // 2, *range(max(1, total - 5), total + 1)})


@pytest.mark.process
@pytest.mark.parametrize("strategy", ["snapshot", "delta"])
def test_killed_at_any_write_or_rename_the_store_stays_readable(tmp_path, strategy):
    first, second = network(), moved(network(), 1)
    pristine = ModelStore(tmp_path / "0")
    base = pristine.save(first, strategy="snapshot") if strategy == "delta" else ""
    [[_, expected, total]] = saves(strategy, base, [(str(pristine.root), 0)])
    stores = {n: ModelStore(tmp_path / str(n)) for n in kill_points(int(total))}
    if base:
        assert {store.save(first, strategy="snapshot") for store in stores.values()} == {base}
    killed = saves(strategy, base, [(str(store.root), n) for n, store in stores.items()])
    assert killed == [[str(-signal.SIGKILL)]] * len(stores)
    for store in stores.values():
        there = store.list()
        # All or nothing: the model is sound, or nobody sees it.
        assert set(there) - {base} <= {expected}
        assert store.verify() == []
        store.gc()
        left = [path for path in store.root.glob("??/*") if path.is_file()]
        assert {path.stem for path in left} == set(there)
        assert not list(store.root.rglob("*.tmp"))
        state = second if base else first
        assert_exact(store.load(store.save(state, base=base or None, strategy=strategy)), state)


@pytest.mark.parametrize("strategy", [Snapshot(compress=False), Snapshot(compress=True), Delta()], ids=str)
@pytest.mark.parametrize("after", range(4))
def test_a_disk_that_is_full_leaves_nothing_behind(tmp_path, monkeypatch, strategy, after):
    store = ModelStore(tmp_path)
    base = store.save(network())
    calls = 0

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    try:
        model = store.save(moved(network(), 1), base=base, strategy=strategy)
    except WriteFailed as error:
        assert "No space left on device" in str(error)
        model = None
    monkeypatch.undo()
    if model is None and store.list() != [base]:
        # The folder could not be synced after the rename: the model is there, and sound.
        assert len(store.list()) == 2
    assert store.verify() == []
    assert not list(store.root.rglob("*.tmp"))


def test_gc_waits_for_a_writer_and_leaves_its_file(tmp_path):
    store = ModelStore(tmp_path)
    base = store.save(network())
    writing = store.root / base[:2] / ".orphan.12345678.tmp"
    writing.write_bytes(b"half a model")
    document = store.root / "documents" / "00" / ("0" * 64)
    document.parent.mkdir(parents=True, exist_ok=True)
    document.write_text("nobody's")
    assert set(store.gc()) == {writing, document}
    assert store.environment(base) is not None
    assert store.gc() == []


def test_gc_keeps_the_documents_of_a_damaged_model(tmp_path):
    store = ModelStore(tmp_path)
    model = store.save(network())
    path = store.info(model).path
    content = path.read_bytes()
    path.write_bytes(b"damaged")
    assert store.gc() == []
    path.write_bytes(content)
    assert store.environment(model) is not None


def is_free(root: Path, operation: int) -> bool:
    """Whether somebody else could lock the store now."""
    descriptor = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def test_savers_keep_removers_out_and_removers_everybody(tmp_path, monkeypatch):
    store = ModelStore(tmp_path)
    seen: list[tuple[bool, bool]] = []

    def looking(real: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            seen.append((is_free(tmp_path, fcntl.LOCK_SH), is_free(tmp_path, fcntl.LOCK_EX)))
            return real(*args, **kwargs)

        return run

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", looking(os.fsync))
        base = store.save(network())
    assert set(seen) == {(True, False)}
    seen.clear()
    (tmp_path / "00").mkdir(exist_ok=True)
    (tmp_path / "00" / ".killed.tmp").write_bytes(b"half")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", looking(Path.unlink))
        store.gc()
        store.delete(base)
    assert len(seen) >= 2
    assert set(seen) == {(False, False)}
    assert is_free(tmp_path, fcntl.LOCK_EX)
