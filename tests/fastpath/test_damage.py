"""Files that are gone, cut short or changed are errors that name them; the process lives and no row is wrong."""

import copy
import ctypes
import mmap
import os
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpath import Columns, CorruptFile, StoreError
from fastpath.errors import DeletedKey
from fastpath.format.deletions import write_deleted
from fastpath.rows.attempts import Scratch
from tests.fastpath.made_store import MadeBatch, MadeStore, PlacedSample, batches, one_file_of_rows, rows
from tests.fastpath.sound_files import write_one_row

PAGE = mmap.PAGESIZE
ROWS = 3 * PAGE // 8


def keys_of(*keys: int) -> np.ndarray:
    return np.array(keys, dtype=np.uint64)


@pytest.fixture
def files(tmp_path: Path) -> MadeStore:
    """Two batches of rows of 8 bytes in files of three pages."""
    return one_file_of_rows(tmp_path, ROWS, ordinals=(0, 1))


def touch_later(path: Path) -> None:
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1_000_000))


@pytest.mark.parametrize("kept", [0, 8, PAGE, 3 * PAGE - 1])
@pytest.mark.parametrize("resident", [False, True])
def test_a_file_cut_short_while_it_is_mapped_is_an_error(files: MadeStore, kept: int, resident: bool) -> None:
    path = files.files[0, 0]
    columns = Columns(np.dtype([("f0", "<u8")]), {"f0": "f0"})
    with files.open(resident=resident) as store:
        store.read(files.keys)
        content = path.read_bytes()
        os.truncate(path, kept)
        for call in (store.read, store.read_blobs, lambda keys: store.read_columns(keys, columns)):
            with pytest.raises(CorruptFile, match=f"{path.name}: expected .* bytes.*, found {kept} bytes") as caught:
                call(keys_of(1 << 32, ROWS - 1, 5))
            assert (caught.value.key, caught.value.offset, caught.value.dataset) == (ROWS - 1, (ROWS - 1) * 8, "d")
        np.testing.assert_array_equal(rows(store, keys_of(1 << 32))[0].view(np.uint64), 1)
        path.write_bytes(content)
        assert rows(store, keys_of(7)).view(np.uint64).tolist() == [[7]]


def test_reading_goes_on_in_other_threads_while_files_are_cut_and_restored(files: MadeStore) -> None:
    path, content = files.files[0, 0], files.files[0, 0].read_bytes()
    rng = np.random.default_rng(0)
    wrong: list[object] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            keys = rng.permutation(files.keys)[:500]
            try:
                found = rows(store, keys).view(np.uint64)[:, 0]
            except CorruptFile:
                continue
            if not np.array_equal(found, (keys >> np.uint64(32)) + (keys & np.uint64(0xFFFFFFFF))):
                wrong.append(found)

    with files.open() as store:
        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            os.truncate(path, 8)
            path.write_bytes(content)
        stop.set()
        for thread in threads:
            thread.join()
        np.testing.assert_array_equal(rows(store, keys_of(3))[0, 0], 3)
    assert wrong == []


def test_a_file_changed_in_place_is_refused_and_taken_again_once_it_is_restored(files: MadeStore) -> None:
    path, content = files.files[0, 0], files.files[0, 0].read_bytes()
    with files.open() as store:
        store.read(keys_of(0))
        changed = bytes([255]) + content[1:]
        path.write_bytes(changed)
        touch_later(path)
        for reader in (store, files.open()):
            with pytest.raises(CorruptFile, match=r"expected checksum .*as when it was ingested") as caught:
                reader.read(keys_of(1 << 32, 9))
            assert (caught.value.key, caught.value.path, caught.value.offset) == (9, str(path), 72)
        path.write_bytes(content)
        assert rows(store, keys_of(9))[0, 0] == 9


def test_a_file_put_in_place_of_a_mapped_one_is_looked_at(files: MadeStore, tmp_path: Path) -> None:
    path, content = files.files[0, 0], files.files[0, 0].read_bytes()
    with files.open() as store:
        store.read(keys_of(0))
        for replacement, is_sound in ((content, True), (content[:-1] + b"x", False)):
            (tmp_path / "other").write_bytes(replacement)
            (tmp_path / "other").replace(path)
            if is_sound:
                assert rows(store, keys_of(9))[0, 0] == 9
            else:
                with pytest.raises(CorruptFile, match="checksum"):
                    store.read(keys_of(9))


def test_a_file_without_mtime_is_compared_by_its_checksum_once(files: MadeStore) -> None:
    with files.open(modified={}) as store:
        assert rows(store, keys_of(9))[0, 0] == 9
    path = files.files[0, 0]
    before = path.stat().st_mtime_ns
    path.write_bytes(b"\xff" + path.read_bytes()[1:])
    os.utime(path, ns=(before, before))
    with files.open(modified={}) as store, pytest.raises(CorruptFile, match="expected checksum"):
        store.read(keys_of(9))


def test_files_in_place_need_a_root(files: MadeStore) -> None:
    with files.open(root=None) as store, pytest.raises(StoreError, match="files that are read in place lie in a local folder"):
        store.read(keys_of(0))


def test_an_index_that_is_not_what_its_checksum_says_is_named_with_the_key(files: MadeStore) -> None:
    write_one_row(files.indexes[0], "0_0.bin", 3 * PAGE)
    with files.open(width=8) as store:
        with pytest.raises(CorruptFile, match=r"0\.arrow: expected checksum") as caught:
            store.read(keys_of(1 << 32, 0))
        assert caught.value.key == 0
        assert rows(store, keys_of(1 << 32))[0, 0] == 1


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_damaged_index_is_named_with_dataset_and_key_though_nobody_said_how_wide_samples_are(
    tmp_path: Path, damaged: int
) -> None:
    files = one_file_of_rows(tmp_path, 4, ordinals=(0, 1))
    files.indexes[damaged].write_bytes(files.indexes[damaged].read_bytes()[:-8])
    mine, others = ((np.uint64(ordinal << 32) + np.arange(2, dtype=np.uint64)) for ordinal in (damaged, 1 - damaged))
    with files.open() as store:
        for call in (
            store.read,
            store.read_blobs,
            store.labels,
            store.timestamps,
            lambda k: store.read_into(k, np.empty((2, 8), np.uint8)),
        ):
            with pytest.raises(CorruptFile, match=rf"{damaged}\.arrow.*\(d, key {mine[0]}\)") as caught:
                call(mine)
            assert (caught.value.dataset, caught.value.key) == ("d", int(mine[0]))
        with pytest.raises(CorruptFile, match=rf"{damaged}\.arrow.*\(d\)"):
            store.read(others)
        assert np.asarray(store.labels(others)).tolist() == [files.label(key) for key in others.tolist()]


def scattered(home: Path) -> MadeStore:
    """A batch whose places stand one by one in its index, of several pages."""
    samples = [PlacedSample(0, i % 3, i.to_bytes(8, "little")) for i in range(2000)]
    return MadeStore(home, [MadeBatch(0, samples, compress=False)])


@pytest.mark.parametrize("with_checksum", [True, False])
def test_an_index_cut_short_while_it_is_mapped_is_an_error(tmp_path: Path, with_checksum: bool) -> None:
    files = scattered(tmp_path)
    with files.open(**({} if with_checksum else {"checksums": {}})) as store:
        store.read(files.keys)
        os.truncate(files.indexes[0], 100)
        for call in (store.read, store.labels, store.timestamps, store.read_blobs):
            with pytest.raises(CorruptFile, match=r"0\.arrow") as caught:
                call(keys_of(1500))
            assert caught.value.key == 1500


def test_an_index_overwritten_while_it_is_mapped_sends_nobody_out_of_a_file(tmp_path: Path) -> None:
    files = scattered(tmp_path)
    with files.open() as store:
        store.read(files.keys)
        size = files.indexes[0].stat().st_size
        for content in (b"\xff" * size, b"\x7f" * size, b"\x01" * size, bytes(size)):
            with files.indexes[0].open("r+b") as file:
                file.write(content)
            touch_later(files.indexes[0])
            for call in (store.read, store.labels, store.read_blobs):
                with pytest.raises((CorruptFile, StoreError)):
                    call(files.keys)


def test_an_index_written_again_with_equal_bytes_is_taken(tmp_path: Path) -> None:
    files = scattered(tmp_path)
    with files.open() as store:
        expected = rows(store, files.keys)
        content = files.indexes[0].read_bytes()
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").replace(files.indexes[0])
        np.testing.assert_array_equal(rows(store, files.keys), expected)


def test_an_index_that_was_overwritten_and_then_replaced_by_a_sound_one_is_read_anew(tmp_path: Path) -> None:
    files = scattered(tmp_path)
    with files.open() as store:
        expected = rows(store, files.keys)
        content = files.indexes[0].read_bytes()
        with files.indexes[0].open("r+b") as file:
            file.write(b"\x01" * len(content))
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").replace(files.indexes[0])
        np.testing.assert_array_equal(rows(store, files.keys), expected)


def test_any_number_of_files_may_be_touched_at_once(tmp_path: Path) -> None:
    files = one_file_of_rows(tmp_path, 4, ordinals=range(12))
    with files.open() as store:
        expected = rows(store, files.keys)
        for path in [*files.files.values(), *files.indexes.values()]:
            touch_later(path)
        np.testing.assert_array_equal(rows(store, files.keys), expected)


def test_what_was_copied_while_another_request_looked_at_the_file_again_is_copied_again(files: MadeStore) -> None:
    # The mapped file is written over, then put back as another file: whoever copied in between must not be satisfied.
    path, content = files.files[0, 0], files.files[0, 0].read_bytes()
    copied: list[bytes] = []
    with files.open() as store:
        rows(store, files.keys)

        def copy(first: int, bases: np.ndarray, scratch: Scratch, n: int, threads: int) -> int:
            if not copied:
                with path.open("r+b") as file:
                    file.write(b"\xff" * len(content))
            address = int(bases[scratch.file[0]]) + int(scratch.offset[0])
            copied.append(ctypes.string_at(address, 8))
            if len(copied) == 1:
                path.with_name("new").write_bytes(content)
                path.with_name("new").replace(path)
                rows(store, keys_of(3))
            return 0

        store.requests.copy(keys_of(9), copy, width=8, threads=1)
    assert copied == [b"\xff" * 8, (9).to_bytes(8, "little")]


def test_deleted_samples_are_refused_and_others_are_read(tmp_path: Path) -> None:
    files = one_file_of_rows(tmp_path, 200, ordinals=(0, 4))
    listed = tmp_path / "batches" / "d" / "4.1.deleted"
    with listed.open("wb") as out:
        write_deleted(out, np.array([0, 63, 64, 199], dtype=np.uint32))
    deleted = [4 << 32 | position for position in (0, 63, 64, 199)]
    kept = np.setdiff1d(files.keys, keys_of(*deleted))
    for arguments in ({}, {"deleted": {4: listed}}):
        with files.open(**arguments) as store:
            assert len(store.read(kept)) == len(kept)
            for key in deleted:
                for call in (store.read, store.read_blobs, store.labels, store.timestamps, store.check):
                    with pytest.raises(DeletedKey, match=f"d: the sample with key {key} was deleted"):
                        call(np.append(kept, keys_of(key)))
    with files.open(deleted={}) as store:
        assert len(store.read(files.keys)) == len(files.keys)
    with listed.open("wb") as out:
        write_deleted(out, np.array([200], dtype=np.uint32))
    with files.open() as store, pytest.raises(CorruptFile, match="positions below 200"):
        store.read(keys_of(4 << 32))


@given(batches(), st.data())
def test_a_deleted_sample_is_refused_with_its_place(made: list[MadeBatch], data: st.DataObject) -> None:
    with TemporaryDirectory() as home:
        files = MadeStore(Path(home), made)
        key = int(data.draw(st.sampled_from(list(files.content))))
        listed = Path(home) / "deleted"
        with listed.open("wb") as out:
            write_deleted(out, np.array([key & 0xFFFFFFFF], dtype=np.uint32))
        with files.open() as store:
            place = store.where(key)
        for root in (files.root, None):
            with files.open(deleted={key >> 32: listed}, root=root) as store, pytest.raises(DeletedKey) as caught:
                store.check(files.keys)
            error = copy.copy(caught.value)  # by way of __reduce__, as pickle does
            assert (error.key, error.dataset, error.offset) == (key, "d", place.offset)
            assert error.path == place.path or (root is None and error.path == Path(place.path).name)
            assert f"byte {place.offset} of {error.path})" in str(error)


OTHERS_BUS_ERROR = """
import faulthandler, mmap, os, sys
import numpy as np
from fastpath import CorruptFile, SampleStore
faulthandler.enable()
store = SampleStore.open([sys.argv[1]], home=sys.argv[2], root=sys.argv[2] + "/root", checksums={}, modified={})
store.read(np.zeros(1, np.uint64))
faulthandler.enable()
path = sys.argv[2] + "/root/0_0.bin"
os.truncate(path, 8)
try:
    store.read(np.array([1000], np.uint64))
except CorruptFile:
    print("survived", flush=True)
with open(path, "rb") as file:
    os.truncate(path, 8192)
    mapped = mmap.mmap(file.fileno(), 8192, access=mmap.ACCESS_READ)
    os.truncate(path, 0)
    print(mapped[5000])
"""


@pytest.mark.process
def test_bus_errors_of_others_still_end_the_process_and_are_reported_by_whoever_did_before(tmp_path: Path) -> None:
    files = one_file_of_rows(tmp_path, ROWS)
    command = [sys.executable, "-c", OTHERS_BUS_ERROR, str(files.indexes[0]), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.stdout == "survived\n"
    assert result.returncode == -7
    assert "Fatal Python error: Bus error" in result.stderr
