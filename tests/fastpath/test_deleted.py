"""Lists of deleted positions: what is written is read again, and nothing else is taken for a list."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastpath.errors import CorruptFile
from fastpath.format.deletions import newest_deleted, read_deleted
from tests.examples import examples
from tests.fastpath.sound_files import list_of_deleted

positions = st.sets(st.integers(0, 2**32 - 1)).map(lambda found: np.array(sorted(found), dtype=np.uint32))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=positions)
def test_what_was_written_is_read_again_and_equal_lists_are_equal_bytes(tmp_path: Path, values: np.ndarray) -> None:
    path = tmp_path / "7.1.deleted"
    path.write_bytes(list_of_deleted(values))
    found = read_deleted(path, hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest())
    assert found.dtype == np.uint32
    assert not found.flags.writeable
    np.testing.assert_array_equal(found, values)
    assert list_of_deleted(values.copy()) == path.read_bytes()


@pytest.mark.parametrize("values", [[3, 3], [3, 2], [1, 2, 0]])
def test_positions_that_do_not_ascend_are_not_written(values: list[int]) -> None:
    with pytest.raises(ValueError, match="strictly ascending"):
        list_of_deleted(np.array(values, dtype=np.uint32))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(200))
@given(at=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_a_changed_byte_is_found_by_the_checksum_and_never_breaks_the_reader_without_one(
    tmp_path: Path, at: int, flip: int
) -> None:
    content = bytearray(list_of_deleted(np.array([1, 5, 70_000], dtype=np.uint32)))
    checksum = hashlib.blake2b(content, digest_size=16).hexdigest()
    content[at % len(content)] ^= flip
    path = tmp_path / "7.1.deleted"
    path.write_bytes(content)
    with pytest.raises(CorruptFile, match=f"expected checksum {checksum}"):
        read_deleted(path, checksum)
    try:
        found = read_deleted(path)
    except CorruptFile:
        return
    assert (np.diff(found.astype(np.int64)) > 0).all()


def test_a_list_that_lost_some_of_its_end_marker_is_the_same_list_or_an_error(tmp_path: Path) -> None:
    content = list_of_deleted(np.array([1, 5, 70_000], dtype=np.uint32))
    path = tmp_path / "7.1.deleted"
    for length in range(len(content) - 8, len(content)):
        path.write_bytes(content[:length])
        try:
            found = read_deleted(path)
        except CorruptFile:
            continue
        assert found.tolist() == [1, 5, 70_000]


def test_the_newest_list_of_a_batch_is_the_one_with_the_highest_version(tmp_path: Path) -> None:
    for name in ("1.2.deleted", "1.10.deleted", "1.9.deleted", "11.30.deleted", "1.x.deleted", ".1.40.deleted.ab.tmp"):
        (tmp_path / name).touch()
    assert newest_deleted(tmp_path / "1.arrow") == tmp_path / "1.10.deleted"
    assert newest_deleted(tmp_path / "1.3.arrow") == tmp_path / "1.10.deleted"
    assert newest_deleted(tmp_path / "11.arrow") == tmp_path / "11.30.deleted"
    assert newest_deleted(tmp_path / "2.arrow") is None
