"""Copies of a node: fetched once, leased while they are open or mapped, and removed in the order of their last use."""

import fcntl
import mmap
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.durability.names import temporary_name
from modyn_dagster.errors import CorruptFile
from modyn_dagster.files.cache_room import locked
from modyn_dagster.files.node_cache import NodeCache
from tests.examples import examples


class Shelf:
    """A store in memory that counts what is fetched."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content, self.fetched = content, Counter[str]()

    def url_of(self, name: str) -> str:
        return f"shelf://{name}"

    def size_of(self, name: str) -> int | None:
        return len(self.content[name]) if name in self.content else None

    def pieces_of(self, name: str, size: int) -> Iterator[bytes]:
        self.fetched[name] += 1
        yield self.content[name][: size // 2]
        yield self.content[name][size // 2 :]


def shelf_of(n: int, n_bytes: int = 100) -> Shelf:
    return Shelf({str(i): bytes([i]) * n_bytes for i in range(n)})


def read(cache: NodeCache, name: str) -> bytes:
    with open(cache.open(cache.root / name), "rb") as file:
        return file.read()


def store(cache: NodeCache, name: str, n_bytes: int = 100) -> None:
    """Write a file beside its name, as whoever publishes one does, and adopt it."""
    path = cache.root / name
    temporary = temporary_name(path)
    temporary.write_bytes(bytes([int(name)] if name.isdigit() else b"n") * n_bytes)
    cache.adopt(temporary, path)


def copies(cache: NodeCache) -> set[str]:
    return {path.name for path in cache.root.iterdir()}


def test_an_object_is_fetched_once(tmp_path: Path) -> None:
    shelf = shelf_of(1)
    for cache in (NodeCache(tmp_path, 1000, shelf), NodeCache(tmp_path, 1000, shelf)):
        assert [read(cache, "0") for _ in range(3)] == [b"\0" * 100] * 3
    assert shelf.fetched == {"0": 1}


def test_threads_that_want_the_same_object_wait_for_one_fetch(tmp_path: Path) -> None:
    shelf, found = shelf_of(1), list[bytes]()
    caches = [NodeCache(tmp_path, 1000, shelf) for _ in range(8)]
    threads = [threading.Thread(target=lambda cache=cache: found.append(read(cache, "0"))) for cache in caches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (found, shelf.fetched) == ([b"\0" * 100] * 8, {"0": 1})


def test_the_least_recently_used_copies_go(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path, 300, shelf_of(6))
    for name in ("0", "1", "2", "0"):
        read(cache, name)
    read(cache, "3")
    assert copies(cache) == {"0", "3"}  # a tenth of the limit is left, so that the next fetch has room
    read(cache, "4")
    assert "3" in copies(cache)


def test_a_copy_that_is_open_stays(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path, 300, shelf_of(6))
    held = cache.open(cache.root / "0")
    for name in "12345":
        read(cache, name)
    assert "0" in copies(cache)
    os.close(held)
    for name in "12345":
        read(cache, name)
    assert "0" not in copies(cache)


def test_a_copy_that_is_mapped_stays_after_its_descriptor_is_closed(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path, 300, shelf_of(6))
    with open(cache.open(cache.root / "0"), "rb") as file:
        mapped = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    for name in "12345":
        read(cache, name)
    assert "0" in copies(cache)
    del mapped
    for name in "12345":
        read(cache, name)
    assert "0" not in copies(cache)


def test_more_in_use_than_there_is_room_for_is_kept_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = NodeCache(tmp_path, 150, shelf_of(3))
    held = [cache.open(cache.root / name) for name in "012"]
    assert copies(cache) == set("012")
    assert "in use exceed MODYN_CACHE_SIZE: 200 bytes of 150" in caplog.text
    for descriptor in held:
        os.close(descriptor)


def test_a_mapping_of_a_copy_that_is_forgotten_stays_readable(tmp_path: Path) -> None:
    shelf = shelf_of(1)
    cache = NodeCache(tmp_path, 300, shelf)
    with open(cache.open(cache.root / "0"), "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    cache.forget(cache.root / "0")
    assert copies(cache) == set()
    assert mapped[:] == b"\0" * 100
    assert read(cache, "0") == b"\0" * 100
    assert shelf.fetched == {"0": 2}


def test_a_copy_that_goes_while_it_is_being_opened_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, flock = shelf_of(1), fcntl.flock
    cache = NodeCache(tmp_path, 300, shelf)
    read(cache, "0")

    def remove_first(descriptor: int, operation: int) -> None:
        if operation == fcntl.LOCK_SH:
            monkeypatch.undo()
            (cache.root / "0").unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    held = cache.open(cache.root / "0")
    assert os.fstat(held).st_nlink == 1
    assert shelf.fetched == {"0": 2}
    os.close(held)


def test_an_object_cut_short_on_its_way_is_no_copy(tmp_path: Path) -> None:
    shelf = shelf_of(1)
    shelf.size_of = lambda name: 101  # type: ignore[method-assign]  # the store says one byte more than it has
    cache = NodeCache(tmp_path, 1000, shelf)
    with pytest.raises(CorruptFile, match="101 bytes, found 100 at shelf://0"):
        read(cache, "0")
    assert copies(cache) == set()


def test_the_count_of_bytes_comes_back_when_it_is_lost(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path, 300, shelf_of(6))
    for name in "01":
        read(cache, name)
    (tmp_path / "locks" / "bytes").write_bytes(b"")
    for name in "23":
        read(cache, name)
    assert sum(path.stat().st_size for path in cache.root.iterdir()) <= 300


def test_a_stored_file_takes_the_place_of_no_more_copies_than_it_needs(tmp_path: Path) -> None:
    cache = NodeCache(tmp_path, 1000, shelf_of(6))
    for name in "012345":
        read(cache, name)
    store(cache, "new", 500)
    assert copies(cache) == {*"2345", "new"}  # 900 bytes
    (tmp_path / "locks" / "bytes").write_bytes(b"")
    store(cache, "newer", 50)
    assert copies(cache) == {*"2345", "new", "newer"}
    assert (tmp_path / "locks" / "bytes").read_text() == "950\n"


def test_a_lock_that_is_held_is_not_waited_for_when_it_need_not_be(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"), pytest.raises(BlockingIOError), locked(tmp_path / "lock", fcntl.LOCK_EX | fcntl.LOCK_NB):
        pass


NAMES = st.integers(0, 5).map(str)
KINDS = st.sampled_from(["open", "map", "close", "read", "forget", "store", "lose the count", "kill a fetch"])
STEPS = st.lists(st.tuples(KINDS, NAMES), max_size=30)


@given(steps=STEPS, limit=st.integers(1, 500))
@settings(max_examples=examples(60))
def test_whatever_happens_what_is_in_use_stays_and_the_rest_has_its_limit(tmp_path_factory, steps, limit) -> None:
    """Leases: no copy in use goes; whatever comes finds room within the limit, unless all that is in use needs more."""
    shelf = shelf_of(6)
    folder = tmp_path_factory.mktemp("cache")
    caches = [NodeCache(folder, limit, shelf) for _ in range(2)]
    held: dict[str, list[object]] = {}
    for i, (step, name) in enumerate(steps):
        cache = caches[i % 2]
        path, n_fetched = cache.root / name, shelf.fetched.total()
        if step in ("open", "map"):
            file = open(cache.open(path), "rb")  # noqa: SIM115 - closed by a later step
            if step == "map":
                with file:
                    held.setdefault(name, []).append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            else:
                held.setdefault(name, []).append(file)
        elif step in ("close", "store"):
            for each in held.pop(name, []):
                each.close()  # type: ignore[attr-defined]  # a file or a map
            if step == "store":
                store(cache, name)
        elif step == "read":
            assert read(cache, name) == shelf.content[name]
        elif step == "forget" and name not in held:
            cache.forget(path)
        elif step == "lose the count":
            (folder / "locks" / "bytes").unlink(missing_ok=True)
        elif step == "kill a fetch":
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(os, "replace", _killed)
                if not path.exists():
                    with pytest.raises(KeyboardInterrupt):
                        cache.open(path)
        present = copies(cache)
        assert set(held) <= present
        assert all(path.read_bytes() == shelf.content[path.name] for path in cache.root.iterdir())
        if step == "store" or shelf.fetched.total() > n_fetched:
            assert 100 * len(present) <= max(limit, 100 * len({*held, name}))
    for each in [each for some in held.values() for each in some]:
        each.close()  # type: ignore[attr-defined]  # a file or a map


def _killed(*_: object) -> None:
    raise KeyboardInterrupt
