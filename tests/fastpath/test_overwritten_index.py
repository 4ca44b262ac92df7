"""An index that somebody cuts short or writes over while it is open: an error that names it, or the right samples."""

import os
import signal
import threading

import numpy as np
import pytest

from fastpath import CorruptFile, SampleStore, UnknownKey
from fastpath.format.batch_table import BatchTable
from fastpath.format.index import BatchIndex
from fastpath.format.index_file import Extents, write_index_to
from tests.fastpath.made_store import MadeBatch, MadeStore, PlacedSample

KEY = 1 << 32


def made(tmp_path, samples, **arguments) -> MadeStore:
    return MadeStore(tmp_path, [MadeBatch(1, samples, **arguments)])


@pytest.fixture
def one_run(tmp_path) -> MadeStore:
    return made(tmp_path, [PlacedSample(0, 0, bytes([i] * 8)) for i in range(20)])


@pytest.fixture
def rows(tmp_path) -> MadeStore:
    samples = [PlacedSample(0, i % 3, bytes([i] * (8 + i % 2))) for i in range(20)]
    return made(tmp_path, samples, compress=False)


def write_over(path, content: bytes) -> None:
    with path.open("r+b") as out:
        out.write(content)


@pytest.mark.parametrize("width", [8, None])
def test_one_run_is_read_from_private_memory_when_the_index_is_cut_short(one_run, width):
    store = one_run.open(width=width)
    store.check(one_run.keys)
    os.truncate(one_run.indexes[1], 0)
    assert store.read(one_run.keys).rows[:, 0].tolist() == list(range(20))
    assert store.where(KEY + 2)[3:] == (16, 8)


def test_files_of_an_index_stay_what_they_were_when_it_is_written_over(one_run):
    path = one_run.indexes[1]
    index = BatchIndex.open(path)
    before = index.files
    write_over(path, b"\xff" * path.stat().st_size)
    assert index.files == before


@pytest.mark.parametrize("method", ["check", "read_blobs", "where", "labels", "timestamps"])
def test_an_index_that_was_written_over_is_named_with_the_key(rows, method):
    store = rows.open(checksums={})
    store.check(rows.keys)
    path = rows.indexes[1]
    write_over(path, np.random.default_rng(0).integers(0, 256, path.stat().st_size, dtype=np.uint8).tobytes())
    with pytest.raises(CorruptFile, match=rf"1\.arrow.*key {KEY}"):
        getattr(store, method)(KEY if method == "where" else rows.keys)


def test_lengths_that_are_possible_but_written_over_are_found(rows):
    store = rows.open(checksums={})
    store.check(rows.keys)
    path = rows.indexes[1]
    content = path.read_bytes()
    lengths = np.array([8 + i % 2 for i in range(20)], dtype=np.int64)
    assert lengths.tobytes() in content
    write_over(path, content.replace(lengths.tobytes(), np.ones(20, dtype=np.int64).tobytes()))
    with pytest.raises(CorruptFile, match=r"1\.arrow"):
        store.read_blobs(rows.keys)


def test_a_file_that_changed_while_it_has_the_id_0_is_looked_at_again(rows):
    store = rows.open()
    store.read_blobs(rows.keys)
    path = rows.indexes[1]
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    shard = next(iter(rows.files.values()))
    data = shard.read_bytes()
    shard.unlink()
    shard.write_bytes(data)
    assert [bytes(blob) for blob in store.read_blobs(rows.keys)] == list(rows.content.values())


def test_an_empty_batch_of_runs_has_no_samples(tmp_path):
    path = tmp_path / "batches" / "d" / "1.arrow"
    path.parent.mkdir(parents=True)
    none = np.empty(0, dtype=np.int64)
    with path.open("wb") as out:
        write_index_to(out, none.view("datetime64[us]"), none, None, Extents(none.astype(np.int32), none, none, none, none), [])
    with pytest.raises(UnknownKey):
        SampleStore.open([path]).read(np.array([KEY], dtype=np.uint64))


def test_numbers_of_numpy_and_unaligned_keys_are_as_good_as_others(one_run):
    store = one_run.open(width=np.int64(8))
    key = one_run.keys[3]
    assert store.where(key) == store.where(int(key))
    unaligned = np.frombuffer(b"x" + one_run.keys.tobytes(), dtype=np.uint64, offset=1)
    np.testing.assert_array_equal(store.read(unaligned).rows, store.read(one_run.keys).rows)


def test_an_index_of_another_name_says_nothing_about_its_shard(tmp_path):
    content = made(tmp_path, [PlacedSample(0, 0, b"12345678")], shard=0)
    content.indexes[1] = content.indexes[1].rename(tmp_path / "batches" / "d" / "my.index.arrow")
    assert bytes(content.open().read_blobs(content.keys)[0]) == b"12345678"


def test_a_list_of_deleted_samples_is_compared_with_its_checksum(one_run, tmp_path):
    with pytest.raises(CorruptFile, match="checksum"):
        path = tmp_path / "1.1.deleted"
        path.write_bytes(b"other")
        one_run.open(deleted={1: path}, deleted_checksums={1: "0" * 32}).check(one_run.keys)


@pytest.mark.process
def test_a_child_knows_the_width_although_a_thread_of_its_parent_was_finding_out(one_run, monkeypatch):
    store, entered, leave = one_run.open(), threading.Event(), threading.Event()
    find = BatchTable.common_width

    def wait(table: BatchTable) -> int | None:
        entered.set()
        leave.wait()
        return find(table)

    monkeypatch.setattr(BatchTable, "common_width", wait)
    finder = threading.Thread(target=lambda: store.width)
    finder.start()
    entered.wait()
    monkeypatch.undo()
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        os._exit(0 if one_run.open().width == 8 else 1)
    leave.set()
    finder.join()
    assert os.waitpid(child, 0)[1] == 0
