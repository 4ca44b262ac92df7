"""A store equals plain Python over the same files, whatever their shape."""

import pickle
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastpath.rows.attempts
import fastpath.threads.workers
from fastpath import Blobs, FixedRows, SampleStore, UnknownKey
from tests.examples import examples
from tests.fastpath.made_store import MadeBatch, MadeStore, PlacedSample, batches, one_file_of_rows, rows

few = settings(max_examples=examples(40), deadline=None)


@contextmanager
def made(of: list[MadeBatch], labels: str | None = "labels") -> Iterator[MadeStore]:
    home = Path(mkdtemp(prefix="fastpath-"))
    try:
        yield MadeStore(home, of, labels=labels)
    finally:
        shutil.rmtree(home)


def some_keys(data: st.DataObject, store: MadeStore) -> np.ndarray:
    return np.array(data.draw(st.lists(st.sampled_from(store.keys.tolist()), max_size=40)), dtype=np.uint64)


@few
@given(batches(), st.sampled_from([b"", b"\n", b"--"]), st.data())
def test_blobs_are_the_samples_in_the_order_of_keys(of: list[MadeBatch], separator: bytes, data: st.DataObject) -> None:
    with made(of) as files, files.open() as store:
        keys = some_keys(data, files)
        blobs = store.read_blobs(keys, separator=separator)
        expected = [files.content[key] + separator for key in keys.tolist()]
        assert [blob.tobytes() for blob in blobs] == expected
        assert [blobs[i].tobytes() for i in range(len(blobs))] == expected
        assert blobs.buffer.tobytes() == b"".join(expected)


@pytest.mark.long
@few
@given(batches(width=5), st.data())
def test_samples_of_one_width_are_rows(of: list[MadeBatch], data: st.DataObject) -> None:
    with made(of) as files, files.open() as store:
        keys = some_keys(data, files)
        assert store.width == 5
        found = store.read(keys)
        assert isinstance(found, FixedRows)
        assert [row.tobytes() for row in found.rows] == [files.content[key] for key in keys.tolist()]
        out = np.zeros((len(keys), 5), dtype=np.uint8)
        store.read_into(keys, out)
        np.testing.assert_array_equal(out, found.rows)
        records = found.view(np.dtype([("a", "<u4"), ("b", "u1")]))
        assert records["b"].tolist() == [files.content[key][4] for key in keys.tolist()]


@pytest.mark.long
@few
@given(batches(), st.sampled_from(["labels", "targets", None]), st.data())
def test_labels_and_times_are_those_of_the_indexes(of: list[MadeBatch], kind: str | None, data: st.DataObject) -> None:
    with made(of, labels=kind) as files, files.open() as store:
        keys = some_keys(data, files)
        labels = store.labels(keys)
        if labels is None:
            assert kind is None
        else:
            assert labels.dtype == (np.int64 if kind == "labels" else np.float64)
            assert labels.tolist() == [files.label(key) for key in keys.tolist()]
        assert store.timestamps(keys).tolist() == [files.time(key).item() for key in keys.tolist()]


@few
@given(batches(), st.data())
def test_where_names_file_offset_and_length(of: list[MadeBatch], data: st.DataObject) -> None:
    with made(of) as files, files.open() as store:
        key = data.draw(st.sampled_from(files.keys.tolist()))
        place = store.where(key)
        assert (place.dataset, place.key) == ("d", key)
        assert Path(place.path).read_bytes()[place.offset :][: place.length] == files.content[key]


@few
@given(batches(), st.lists(st.tuples(st.integers(-2, 60), st.integers(-1, 60)), max_size=8), st.data())
def test_other_ranges_of_the_files_are_read_or_refused(
    of: list[MadeBatch], ranges: list[tuple[int, int]], data: st.DataObject
) -> None:
    with made(of) as files, files.open() as store:
        keys = np.array([data.draw(st.sampled_from(files.keys.tolist())) for _ in ranges], dtype=np.uint64)
        paths = [Path(store.where(key).path).read_bytes() for key in keys.tolist()]
        offsets, lengths = (np.array([pair[i] for pair in ranges], dtype=np.int64) for i in (0, 1))
        legal = all(
            offset >= 0 and length >= 0 and offset + length <= len(file) for offset, length, file in zip(offsets, lengths, paths)
        )
        if not legal:
            with pytest.raises(fastpath.CorruptFile, match="ranges inside its"):
                store.read_ranges(keys, offsets, lengths)
            return
        found = store.read_ranges(keys, offsets, lengths)
        assert [blob.tobytes() for blob in found] == [
            file[offset : offset + length] for offset, length, file in zip(offsets, lengths, paths)
        ]


@few
@given(batches(), st.integers(0, 2**63 - 1), st.data())
def test_the_first_unknown_key_is_named_by_every_method(of: list[MadeBatch], unknown: int, data: st.DataObject) -> None:
    with made(of) as files, files.open() as store:
        if unknown in files.content:
            return
        known = some_keys(data, files)
        keys = np.concatenate((known, np.array([unknown], dtype=np.uint64), known))
        for call in (store.read, store.read_blobs, store.labels, store.timestamps, store.check):
            with pytest.raises(UnknownKey, match=f"d: no sample with key {unknown}") as caught:
                call(keys)
            assert caught.value.key == unknown


@few
@given(batches(), st.integers(1, 3), st.data())
def test_pieces_and_threads_change_nothing(of: list[MadeBatch], threads: int, data: st.DataObject) -> None:
    with made(of) as files, pytest.MonkeyPatch.context() as patch, files.open(threads=threads) as store:
        patch.setattr(fastpath.rows.attempts, "PIECE", 3)
        patch.setattr(fastpath.threads.workers, "MIN_KEYS", 2)
        keys = some_keys(data, files)
        assert [blob.tobytes() for blob in store.read_blobs(keys)] == [files.content[key] for key in keys.tolist()]
        labels = store.labels(keys)
        assert labels is not None
        assert labels.tolist() == [files.label(key) for key in keys.tolist()]


def test_an_error_in_one_of_several_threads_is_raised_when_all_have_ended(tmp_path: Path) -> None:
    files = one_file_of_rows(tmp_path, 10)
    with files.open(threads=2) as store:
        keys = np.zeros(40_000, dtype=np.uint64)
        keys[-1] = 10
        with pytest.raises(UnknownKey):
            store.read(keys)
        keys[-1] = 9
        found = store.read(keys)
        assert isinstance(found, FixedRows)
        assert found.rows[:, 0].tolist() == [0] * 39_999 + [9]


def test_many_batches_with_gaps_are_found(tmp_path: Path) -> None:
    ordinals = [3 * i for i in range(200)] + [2**31 - 1, 2**31 - 5, 2**20]
    files = one_file_of_rows(tmp_path, 2, ordinals=ordinals)
    with files.open() as store:
        keys = np.random.default_rng(0).permutation(files.keys)
        found = store.read(keys)
        assert isinstance(found, FixedRows)
        assert [row.tobytes() for row in found.rows] == [files.content[key] for key in keys.tolist()]
        with pytest.raises(UnknownKey):
            store.read(np.array([1 << 32], dtype=np.uint64))
        assert store.n_batches == 203


def test_offsets_beyond_four_gigabytes_are_read(tmp_path: Path) -> None:
    # Three rows of 2 GiB + 4 in one run, in a file with holes.
    stride, n = 2**31 + 4, 3
    path = tmp_path / "root" / "large.bin"
    path.parent.mkdir()
    size = stride * n
    with path.open("wb") as file:
        file.truncate(size)
        for i in range(n):
            file.seek(i * stride)
            file.write(bytes([i + 1]) * 4)
    from fastpath.format.index_file import Extents, IndexedFile, write_index_to

    index = tmp_path / "batches" / "d" / "0.arrow"
    index.parent.mkdir(parents=True)
    run = [np.array([value], dtype=np.int64) for value in (0, 4, 0, stride)]
    extents = Extents(np.zeros(1, dtype=np.int32), run[0], run[1], run[2], run[3])
    with index.open("wb") as out:
        write_index_to(out, np.zeros(n, "datetime64[us]"), None, None, extents, [IndexedFile("large.bin", size, "x")])
    with SampleStore.open([index], root=path.parent, modified={"large.bin": path.stat().st_mtime_ns}) as store:
        found = store.read(np.array([2, 0, 1, 2], dtype=np.uint64))
        assert isinstance(found, FixedRows)
        assert found.rows.tolist() == [[3] * 4, [1] * 4, [2] * 4, [3] * 4]
        ranges = store.read_ranges(np.zeros(1, np.uint64), np.array([2**32 + 8]), np.array([4]))
        assert ranges.buffer.tolist() == [3] * 4


def test_samples_of_different_lengths_are_blobs_and_no_rows(tmp_path: Path) -> None:
    files = MadeStore(tmp_path, [MadeBatch(0, [PlacedSample(0, 0, b"a"), PlacedSample(0, 0, b"bc")])])
    with files.open() as store:
        assert store.width is None
        found = store.read(files.keys)
        assert isinstance(found, Blobs)
        with pytest.raises(ValueError, match="samples have different lengths"):
            store.read_into(files.keys, np.empty((2, 1), np.uint8))
    with files.open(width=1) as store, pytest.raises(fastpath.CorruptFile, match="samples of 1 bytes"):
        store.read(files.keys)


@pytest.mark.parametrize(
    "keys",
    [np.zeros(1, np.int64), np.zeros((1, 1), np.uint64), np.zeros(1, np.float64), [0]],
    ids=["int64", "2d", "float64", "list"],
)
def test_keys_of_another_type_are_refused(tmp_path: Path, keys: Any) -> None:
    with one_file_of_rows(tmp_path, 2).open() as store:
        for call in (store.read, store.labels, store.read_blobs, store.check):
            with pytest.raises(ValueError, match=r"keys must be uint64\[n\]"):
                call(keys)


@pytest.mark.parametrize("key", [-1, 2**64, 2**63, 1 << 32])
def test_a_place_of_no_sample_is_refused(tmp_path: Path, key: int) -> None:
    with one_file_of_rows(tmp_path, 2).open() as store, pytest.raises(UnknownKey, match=f"d: no sample with key {key} "):
        store.where(key)


def test_outputs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    files = one_file_of_rows(tmp_path, 4)
    locked = np.empty((4, 8), np.uint8)
    locked.flags.writeable = False
    with files.open() as store:
        outs: list[Any] = [np.empty((4, 7), np.uint8), np.empty((3, 8), np.uint8), np.empty((4, 8), np.int8), locked]
        for out in outs:
            with pytest.raises(ValueError, match="out must be"):
                store.read_into(files.keys, out)
        with pytest.raises(ValueError, match="out must be"):
            store.read_blobs(files.keys, out=np.empty(31, np.uint8))
        with pytest.raises(ValueError, match="out must be"):
            store.labels_into(files.keys, np.empty(4, np.float64))
        given = np.zeros(40, np.uint8)
        assert store.read_blobs(files.keys, out=given).buffer.base is given
        assert given.tobytes() == b"".join(files.content.values()) + bytes(8)


def test_no_keys_need_no_files(tmp_path: Path) -> None:
    files = one_file_of_rows(tmp_path, 4)
    files.files[0, 0].unlink()
    none = np.empty(0, dtype=np.uint64)
    with files.open() as store:
        assert len(store.read(none)) == len(store.read_blobs(none)) == len(store.timestamps(none)) == 0
        labels = store.labels(none)
        assert labels is not None
        assert labels.shape == (0,)
    with SampleStore.open({}) as empty:
        assert (empty.labels(none), empty.width, len(empty.read(none))) == (None, None, 0)
        with pytest.raises(UnknownKey):
            empty.read(np.zeros(1, np.uint64))


def test_paths_say_ordinals_dataset_and_home_and_the_last_rewrite_counts(tmp_path: Path) -> None:
    old, new = one_file_of_rows(tmp_path / "a", 4, shard=0), one_file_of_rows(tmp_path / "b", 3, shard=0)
    shutil.move(new.indexes[0], old.indexes[0].with_name("0.2.arrow"))
    shutil.move(new.files[0, 0], old.files[0, 0].with_name("0.2.bin"))
    with SampleStore.open(old.indexes[0].parent.glob("*.arrow")) as store:
        assert (store.dataset, store.n_batches) == ("d", 1)
        assert len(store.read(np.arange(3, dtype=np.uint64))) == 3
        with pytest.raises(UnknownKey):
            store.check(np.array([3], dtype=np.uint64))
    with pytest.raises(ValueError, match=r"an index is named <ordinal>\.arrow"):
        SampleStore.open([tmp_path / "x.arrow"])
    with pytest.raises(ValueError, match="the ordinal of a batch must be"):
        SampleStore.open({2**31: tmp_path / "x.arrow"})


def test_a_pickled_store_reads_the_same(tmp_path: Path) -> None:
    files = one_file_of_rows(tmp_path, 4)
    with files.open(dtype=np.dtype([("f0", "<u8")])) as store, pickle.loads(pickle.dumps(store)) as again:  # noqa: S301 - of our own
        assert again.dtype == store.dtype
        np.testing.assert_array_equal(rows(again, files.keys), rows(store, files.keys))


def test_a_closed_store_opens_again(tmp_path: Path) -> None:
    files = one_file_of_rows(tmp_path, 4)
    store = files.open(threads=2)
    for _ in range(2):
        assert len(store.read(np.zeros(20_000, np.uint64))) == 20_000
        store.close()


@pytest.mark.long
@few
@given(batches(), st.data())
def test_a_resident_store_reads_the_same(of: list[MadeBatch], data: st.DataObject) -> None:
    with made(of) as files, files.open(resident=True) as store:
        keys = some_keys(data, files)
        assert [blob.tobytes() for blob in store.read_blobs(keys)] == [files.content[key] for key in keys.tolist()]
