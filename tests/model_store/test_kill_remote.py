"""Processes that are killed before any of their writes to S3: a model that is there has what it needs, and goes on having it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from modyn_dagster.errors import ModelInUse
from modyn_dagster.model_store import ModelStore, Snapshot
from modyn_dagster.model_store.commit import removal
from tests.model_store.lineages import moved, network
from tests.model_store.s3 import S3
from tests.model_store.states import assert_exact

ROOT = Path(__file__).resolve().parents[2]
STATES = [network(width=20), moved(network(width=20), 1)]

#: For each (save or delete, url, n) of what it is given forks a child that does that, and kills itself before its n-th write.
#: Prints one line per child: its exit status, and how many writes it made.
ACTOR = """
import json, os, signal, sys
given = json.load(sys.stdin)
sys.path.insert(0, given["repository"])
import s3fs
from modyn_dagster.model_store import ModelStore
from tests.model_store.lineages import moved, network
def act(does, url, fatal):
    store = ModelStore(url, threads=1, storage_options=given["options"])
    files, writes = store.repository.folder.filesystem, 0
    def before(function):
        def write(*args, **kwargs):
            nonlocal writes
            writes += 1
            if writes == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)
        return write
    for name in ("put_file", "rm_file"):
        setattr(files, name, before(getattr(files, name)))
    if does == "save":
        store.save(moved(network(width=20), 1), base=given["base"], strategy="delta")
    else:
        store.delete(given["base"], rebase=True)
    return writes
for job in given["jobs"]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(act(*job)).encode())
        os._exit(0)
    os.close(writer)
    said = os.read(reader, 100).decode()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said)
"""
#: One more than each of them makes.
WRITES = {"save": 5, "delete": 7}


def store_with(s3: S3, n_models: int) -> tuple[ModelStore, list[str]]:
    """One model, or two of which the second is a difference to the first."""
    # Of this process, all share their connections.
    store = ModelStore(s3.fresh_url(), storage_options=s3.options | {"skip_instance_cache": False})
    ids = [store.save(STATES[0], strategy=Snapshot(compress=True))]
    for state in STATES[1:n_models]:
        ids.append(store.save(state, base=ids[0], strategy="delta"))
    return store, ids


def killed(s3: S3, base: str, jobs: list[tuple[str, str, int]]) -> list[list[str]]:
    given = {"repository": str(ROOT), "options": s3.options, "base": base, "jobs": jobs}
    done = subprocess.run([sys.executable, "-c", ACTOR], input=json.dumps(given), capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.soak("kills-store")
def test_killed_before_any_write_nothing_lacks_what_it_needs(s3, monkeypatch):
    monkeypatch.setattr(removal, "PATIENCE", 0.0)
    stores, jobs, expected_ends = [], [], []
    for does, n_models in (("save", 1), ("delete", 2)):
        for n in range(1, WRITES[does] + 1):
            store, ids = store_with(s3, n_models)
            stores.append(store)
            jobs.append((does, str(store.root), n))
            expected_ends.append([str(-signal.SIGKILL)] if n < WRITES[does] else ["0", str(n - 1)])
    base, child = ids
    assert killed(s3, base, jobs) == expected_ends
    refused = []
    for store, (does, _, n) in zip(stores, jobs, strict=True):
        there = store.list()
        assert store.verify() == []
        try:
            if base in there:
                store.delete(base, rebase=True)
        except ModelInUse:
            refused.append((does, n))
            store.gc(older_than=0)
            store.delete(base, rebase=True)
        assert store.list() == [model for model in there if model == child]
        if child in there:
            assert_exact(store.load(child), STATES[1])
    # From after its reservation until that is taken back, a saver is taken to be at work.
    assert refused == [("save", n) for n in (3, 4)]
