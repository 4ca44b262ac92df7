"""Mapped files: bounded, shared by threads, opened when first needed, and never gone while a request reads them."""

import gc
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import fastpath.format.file_table
import fastpath.format.mapped_files
import fastpath.rows.attempts
from fastpath import CorruptFile, SampleStore
from fastpath.format.file_table import FileTable
from fastpath.format.mapped_files import Expected, open_verified
from tests.fastpath.made_store import MadeBatch, MadeStore, PlacedSample, digest, one_file_of_rows, rows


def mapped_paths(below: Path) -> list[str]:
    found = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith(".bin")]
    return [path for path in found if path.startswith(str(below))]


def values(store: SampleStore, keys: np.ndarray) -> np.ndarray:
    return rows(store, keys).view(np.uint64)[:, 0]


def one_file_a_sample(home: Path, n: int) -> MadeStore:
    samples = [PlacedSample(i, 0, i.to_bytes(8, "little")) for i in range(n)]
    return MadeStore(home, [MadeBatch(0, samples)])


def test_files_are_mapped_when_they_are_first_needed_and_stay(tmp_path: Path) -> None:
    files = one_file_of_rows(tmp_path, 10, ordinals=(0, 1, 2))
    with files.open(width=8) as store:
        assert mapped_paths(tmp_path) == []
        values(store, np.array([1 << 32], np.uint64))
        assert mapped_paths(tmp_path) == [str(files.files[1, 0])]
        values(store, files.keys)
        assert sorted(mapped_paths(tmp_path)) == sorted(str(path) for path in files.files.values())
    assert mapped_paths(tmp_path) == []


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    files = one_file_a_sample(tmp_path, 50)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with files.open() as store:
        assert values(store, files.keys).tolist() == list(range(50))
        assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.long
@pytest.mark.parametrize("resident", [False, True])
def test_a_store_that_is_let_go_gives_its_memory_back_before_garbage_is_collected(tmp_path: Path, resident: bool) -> None:
    files = one_file_a_sample(tmp_path, 20)
    gc.collect()
    gc.disable()
    try:
        store = files.open(resident=resident)
        assert values(store, files.keys).tolist() == list(range(20))
        table = weakref.ref(store.files)
        del store
        assert table() is None
        assert mapped_paths(tmp_path) == []
    finally:
        gc.enable()


def test_more_files_than_may_be_mapped_are_read_in_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = one_file_a_sample(tmp_path, 200)
    monkeypatch.setattr(fastpath.format.file_table, "MAX_MAPPED", 20)
    monkeypatch.setattr(fastpath.rows.attempts, "PIECE_OF_FILES", 8)
    rng = np.random.default_rng(0)
    with files.open() as store:
        for _ in range(5):
            keys = rng.permutation(files.keys)
            assert values(store, keys).tolist() == keys.tolist()
            assert len(mapped_paths(tmp_path)) <= 20 + 8
        store.labels(files.keys)
        # What was used last is still there.
        recent = keys[-5:]
        assert {str(files.files[0, int(key)]) for key in recent} <= set(mapped_paths(tmp_path))


@pytest.mark.long
def test_several_threads_with_more_files_than_may_be_mapped_all_come_to_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = one_file_a_sample(tmp_path, 120)
    monkeypatch.setattr(fastpath.format.file_table, "MAX_MAPPED", 10)
    monkeypatch.setattr(fastpath.rows.attempts, "PIECE_OF_FILES", 4)

    def read(seed: int) -> bool:
        keys = np.random.default_rng(seed).permutation(files.keys)
        return all(np.array_equal(values(store, keys), keys) for _ in range(5))

    with files.open() as store, ThreadPoolExecutor(4) as threads:
        assert all(threads.map(read, range(8)))


def test_threads_that_need_the_same_new_files_at_once_all_read_right(tmp_path: Path) -> None:
    files = one_file_of_rows(tmp_path, 50, ordinals=range(30))
    expected = (files.keys >> np.uint64(32)) + (files.keys & np.uint64(0xFFFFFFFF))
    for round_ in range(5):
        with files.open() as store:
            start = threading.Barrier(6)

            def read(seed: int, store: SampleStore = store, start: threading.Barrier = start) -> bool:
                order = np.random.default_rng(seed).permutation(len(files.keys))
                start.wait()
                labels = store.labels(files.keys[order])
                assert labels is not None
                same = np.array_equal(labels, files.keys[order] % 1000)
                return same and np.array_equal(values(store, files.keys[order]), expected[order])

            with ThreadPoolExecutor(6) as threads:
                assert all(threads.map(read, range(6 * round_, 6 * round_ + 6)))


@pytest.mark.process
def test_a_forked_process_reads_on_whatever_threads_did(tmp_path: Path) -> None:
    files = one_file_of_rows(tmp_path, 10, ordinals=(0, 1))
    with files.open(width=8, threads=2) as store:
        many = np.zeros(20_000, np.uint64)
        values(store, many)
        with ExitStack() as held:
            for lock in store.files.locks:
                held.enter_context(lock)
            child = os.fork()
            if child == 0:
                found = values(store, np.concatenate((many, np.array([1 << 32 | 5], np.uint64))))
                os._exit(0 if found[-1] == 6 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_is_retired_goes_when_all_requests_of_that_time_are_over() -> None:
    class Held:
        pass

    table = FileTable()
    held, unused = Held(), Held()
    gone, gone_at_once = weakref.ref(held), weakref.ref(unused)
    table.retire(unused)
    del unused
    assert gone_at_once() is None
    earlier, later = table.begin(), table.begin()
    table.retire(held)
    del held
    table.end(later)
    assert gone() is not None
    table.end(earlier)
    assert gone() is None


def test_an_empty_file_can_hold_samples_of_no_bytes(tmp_path: Path) -> None:
    files = MadeStore(tmp_path, [MadeBatch(0, [PlacedSample(0, 0, b"")] * 3)])
    with files.open() as store:
        assert store.width == 0
        assert len(store.read(files.keys)) == 3
        assert store.read_blobs(files.keys, separator=b"\n").buffer.tobytes() == b"\n\n\n"


def test_content_is_hashed_once_in_a_process_as_long_as_it_stays_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    expected = Expected(path, 7, digest(b"content"))
    reads = []
    read = os.read

    def counted(descriptor: int, size: int) -> bytes:
        reads.append(size)
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", counted)
    for _ in range(3):
        mapped, version = open_verified(expected)
        assert bytes(memoryview(mapped)) == b"content"
        assert (version.size, version.inode) == (7, path.stat().st_ino)
    assert len(reads) == 2
    path.write_bytes(b"CONTENT")
    with pytest.raises(CorruptFile, match="expected checksum"):
        open_verified(expected)


def test_what_remembers_hashes_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastpath.format.mapped_files, "MAX_REMEMBERED", 3)
    for i in range(8):
        path = tmp_path / str(i)
        path.write_bytes(bytes([i]))
        open_verified(Expected(path, 1, digest(bytes([i]))))
    assert len(fastpath.format.mapped_files.verified_checksums) <= 3


def test_the_width_of_a_store_is_settled_by_the_first_batch_whose_samples_differ(tmp_path: Path) -> None:
    rows = [MadeBatch(ordinal, [PlacedSample(0, 0, b"abc")] * 2) for ordinal in range(2)]
    text = MadeBatch(2, [PlacedSample(0, 0, b"abc"), PlacedSample(0, 0, b"abcd")])
    later = [MadeBatch(ordinal, [PlacedSample(0, 0, b"abc")]) for ordinal in range(3, 9)]
    files = MadeStore(tmp_path, [*rows, text, *later])
    with files.open() as store:
        assert store.width is None
        assert store.n_opened == 3
