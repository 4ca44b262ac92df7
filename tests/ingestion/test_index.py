from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import CorruptFile
from modyn_dagster.ingestion.index import BatchIndex, Extents, IndexedFile, write_index

FILES = [IndexedFile("a/b.csv", 100, "c1"), IndexedFile(None, 50, "c2")]


def times(n: int) -> np.ndarray[tuple[int], np.dtype[np.datetime64]]:
    return (np.arange(n) * 10).astype("datetime64[us]")


def write(path: Path, n: int = 5) -> str:
    extents = Extents.of(np.zeros(n, np.int32), np.arange(n) * 8, np.full(n, 8))
    return write_index(path, times(n), np.arange(n), None, extents, FILES)


@st.composite
def places(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Places of samples as formats make them: runs of records, single rows, several files."""
    found: list[tuple[int, int, int]] = []
    for _ in range(draw(st.integers(1, 6))):
        file, offset, length = draw(st.integers(0, 1)), draw(st.integers(0, 2**40)), draw(st.integers(0, 5))
        gap = draw(st.sampled_from([0, 0, 1]))
        found += [(file, offset + i * (length + gap), length) for i in range(draw(st.integers(1, 5)))]
    return found


@given(places())
def test_extents_lead_to_the_places_they_were_made_of(samples: list[tuple[int, int, int]]) -> None:
    file, offset, length = (np.array(column) for column in zip(*samples))
    extents = Extents.of(file.astype(np.int32), offset, length)
    positions = np.random.default_rng(0).integers(0, len(samples), 3 * len(samples))
    found_file, found_offset, found_length = extents.locate(positions)
    np.testing.assert_array_equal(found_file, file[positions])
    np.testing.assert_array_equal(found_offset, offset[positions])
    np.testing.assert_array_equal(found_length, length[positions])


def test_records_one_after_the_other_are_one_extent() -> None:
    extents = Extents.of(np.zeros(180_000, np.int32), 16 + np.arange(180_000) * 160, np.full(180_000, 160))
    assert len(extents.file) == 1


@pytest.mark.parametrize("with_runs", [True, False])
def test_an_index_reads_back_what_was_written(tmp_path: Path, with_runs: bool) -> None:
    n = 1000
    rng = np.random.default_rng(0)
    offset = np.arange(n) * 8 if with_runs else rng.permutation(n) * 9
    file = np.repeat([0, 1], n // 2).astype(np.int32)
    extents = Extents.of(file, offset, np.full(n, 8))
    targets = rng.normal(size=n)
    checksum = write_index(tmp_path / "i.arrow", times(n), None, targets, extents, FILES)
    index = BatchIndex.open(tmp_path / "i.arrow", checksum)
    assert (index.n, index.labels, index.files) == (n, None, tuple(FILES))
    np.testing.assert_array_equal(index.times, times(n))
    assert index.targets is not None
    np.testing.assert_array_equal(index.targets, targets)
    found_file, found_offset, found_length = index.locate(np.arange(n))
    np.testing.assert_array_equal(found_file, file)
    np.testing.assert_array_equal(found_offset, offset)
    assert set(found_length) == {8}
    assert not index.times.flags.writeable


def test_equal_content_gives_equal_bytes_wherever_it_is_written(tmp_path: Path) -> None:
    assert write(tmp_path / "one.arrow") == write(tmp_path / "other" / "two.arrow")
    assert (tmp_path / "one.arrow").read_bytes() == (tmp_path / "other" / "two.arrow").read_bytes()


def test_another_content_than_the_checksum_promises_is_refused(tmp_path: Path) -> None:
    checksum = write(tmp_path / "i.arrow", 4)
    write(tmp_path / "i.arrow", 5)
    with pytest.raises(CorruptFile, match="expected checksum"):
        BatchIndex.open(tmp_path / "i.arrow", checksum)


@pytest.mark.parametrize("damage", [b"", b"ARROW1", b"x" * 500], ids=len)
def test_a_file_that_is_no_index_is_refused(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "i.arrow").write_bytes(damage)
    with pytest.raises(CorruptFile):
        BatchIndex.open(tmp_path / "i.arrow")


def test_an_index_that_is_cut_anywhere_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "i.arrow")
    whole = (tmp_path / "i.arrow").read_bytes()
    # The last stream's end marker is all that may be missing.
    for length in range(len(whole) - 8):
        (tmp_path / "cut.arrow").write_bytes(whole[:length])
        with pytest.raises(CorruptFile):
            BatchIndex.open(tmp_path / "cut.arrow")


def test_a_missing_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorruptFile, match=r"none\.arrow"):
        BatchIndex.open(tmp_path / "none.arrow")
