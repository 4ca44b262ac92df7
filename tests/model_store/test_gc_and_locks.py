"""A full disk, the files that ``gc`` removes and those it leaves, and the locks of savers and removers of a local store."""

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modyn_dagster.errors import WriteFailed
from modyn_dagster.model_store import Delta, ModelStore, Snapshot
from tests.model_store.lineages import moved, network


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
    """True if somebody else could lock the store now."""
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
