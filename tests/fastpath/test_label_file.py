"""Label files: what is written is read again, damage is found, and unsound rows are neither written nor read."""

import hashlib
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastpath.errors import CorruptFile
from fastpath.format.labels.label_file import LabelFile, LabelRows, write_label_rows
from tests.examples import examples
from tests.fastpath.sound_files import stream

single_rows = st.tuples(st.integers(0, 2**40), st.integers(0, 9), st.integers(-(10**15), 10**15), st.integers(0, 2**64 - 1))


def rows_of(content: list[tuple[int, float, int, int]], dtype: type = np.int64) -> LabelRows:
    keys, values, known_at, digests = zip(*content) if content else ((), (), (), ())
    times = np.array(known_at, dtype=np.int64).view("datetime64[us]")
    return LabelRows(np.array(keys, np.uint64), np.array(values, dtype), times, np.array(digests, np.uint64))


def file_of(rows: LabelRows) -> bytes:
    out = io.BytesIO()
    write_label_rows(out, rows)
    return out.getvalue()


def assert_equal(found: LabelRows, expected: LabelRows) -> None:
    for column, wanted in zip(found, expected, strict=True):
        assert column.dtype == wanted.dtype
        np.testing.assert_array_equal(column, wanted)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.lists(single_rows, max_size=20), dtype=st.sampled_from([np.int64, np.float64]))
def test_written_labels_are_read_again_batch_by_batch(tmp_path: Path, content: list, dtype: type) -> None:
    rows = rows_of(content, dtype).sorted()
    path = tmp_path / "7.arrow"
    path.write_bytes(file_of(rows))
    file = LabelFile.open(path, hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest())
    assert (file.n, file.kind) == (len(content), "labels" if dtype is np.int64 else "targets")
    assert_equal(file.rows(), rows)
    for ordinal, first, n in rows.parts():
        part = file.rows(first, n)
        assert (part.keys >> np.uint64(32) == ordinal).all()
    assert [ordinal for ordinal, _, _ in rows.parts()] == sorted(set((rows.keys >> np.uint64(32)).tolist()))
    assert sum(n for _, _, n in rows.parts()) == len(content)


@given(content=st.lists(single_rows, max_size=12), data=st.data())
def test_equal_labels_are_equal_bytes_in_any_order(content: list, data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(content))
    distinct = len({row[0:1] + row[2:] for row in content}) == len(content)
    if distinct:
        assert file_of(rows_of(shuffled).sorted()) == file_of(rows_of(content).sorted())


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ([(2, 1, 0, 0), (1, 1, 0, 0)], "another order"),
        ([(1, 1, 5, 0), (1, 1, 4, 0)], "another order"),
        ([(1, 1, 5, 2), (1, 1, 5, 1)], "another order"),
        ([(1, -1, 0, 0)], "negative class"),
        ([(1, 1, np.iinfo(np.int64).min, 0)], "without the time"),
    ],
)
def test_unsound_labels_are_not_written(content: list, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        file_of(rows_of(content))


def test_a_target_that_is_no_number_is_not_written() -> None:
    with pytest.raises(ValueError, match="no number"):
        file_of(rows_of([(1, np.nan, 0, 0)], np.float64))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(200))
@given(at=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_a_changed_byte_is_found_by_the_checksum_and_never_breaks_the_reader_without_one(
    tmp_path: Path, at: int, flip: int
) -> None:
    content = bytearray(file_of(rows_of([(1, 0, 5, 3), (1, 1, 6, 2), (2**33, 4, 0, 9)])))
    checksum = hashlib.blake2b(content, digest_size=16).hexdigest()
    content[at % len(content)] ^= flip
    path = tmp_path / "7.arrow"
    path.write_bytes(content)
    with pytest.raises(CorruptFile, match=f"expected checksum {checksum}"):
        LabelFile.open(path, checksum)
    try:
        found = LabelFile.open(path).rows()
    except CorruptFile:
        return
    assert found.problem() is None


@pytest.mark.parametrize("length", [0, 1, 8, 100, 400])
def test_a_file_that_was_cut_short_is_an_error_or_the_same_labels(tmp_path: Path, length: int) -> None:
    path = tmp_path / "7.arrow"
    path.write_bytes(file_of(rows_of([(1, 0, 5, 3)]))[:length])
    with pytest.raises(CorruptFile):
        LabelFile.open(path)


def test_other_arrow_files_are_not_taken_for_labels(tmp_path: Path) -> None:
    path = tmp_path / "7.arrow"
    sound = pa.ipc.open_stream(file_of(rows_of([(1, 0, 5, 3)]))).read_all()
    columns = {name: sound[name].combine_chunks() for name in sound.column_names}
    for content in (
        stream({"key": columns["key"]}, {"modyn_labels": "1"}),
        stream(columns, {"modyn_labels": "2"}),
        stream(columns, {"modyn_labels": "1"}, batches=2),
        stream(columns, {"modyn_labels": "1"}, compression="zstd"),
    ):
        path.write_bytes(content)
        with pytest.raises(CorruptFile):
            LabelFile.open(path)


def test_rows_beyond_the_end_of_a_file_are_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "7.arrow"
    path.write_bytes(file_of(rows_of([(1, 0, 5, 3)])))
    with pytest.raises(CorruptFile, match=r"7\.arrow.*expected rows 0 to 2"):
        LabelFile.open(path).rows(0, 2)
