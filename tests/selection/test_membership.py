"""Keys are found in a training set by a search, as by reading all of it; a damaged partition is no answer."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpath import Partition
from modyn_dagster.errors import CorruptFile
from modyn_dagster.selection.membership import held_by
from modyn_dagster.selection.training_set import write_training_set


def written(path: Path, keys: list[int], size: int) -> str:
    held = np.array(sorted(keys), np.uint64)
    parts = [held[at : at + size] for at in range(0, len(held), size)]
    done = write_training_set(path, [Partition(part, np.ones(len(part), np.float32)) for part in parts])
    return done.checksum


@given(
    keys=st.sets(st.integers(0, 60), max_size=40),
    asked=st.sets(st.integers(0, 64), max_size=20),
    size=st.integers(1, 7),
)
def test_a_search_finds_what_reading_all_of_it_finds(tmp_path_factory: pytest.TempPathFactory, keys, asked, size) -> None:
    path = tmp_path_factory.mktemp("set") / "set.arrow"
    checksum = written(path, list(keys), size)
    wanted = np.array(sorted(asked), np.uint64)
    assert held_by(path, checksum, wanted).tolist() == [key in keys for key in sorted(asked)]


def test_one_partition_of_many_is_read(tmp_path: Path) -> None:
    path = tmp_path / "set.arrow"
    checksum = written(path, list(range(0, 2000, 2)), 10)
    assert held_by(path, checksum, np.array([1000, 1001], np.uint64)).tolist() == [True, False]
    _damage(path, 7)
    # Partition 0, where the key 7 was written: it is not among those that the search for 1000 reads.
    assert held_by(path, checksum, np.array([1000], np.uint64)).tolist() == [True]
    with pytest.raises(CorruptFile):
        held_by(path, checksum, np.array([8], np.uint64))


@pytest.mark.soak("laws-policies")
@pytest.mark.parametrize("instead", [1, 5000], ids=["smaller", "larger"])
def test_a_damaged_key_is_an_error_where_it_could_matter_and_never_a_wrong_answer(tmp_path: Path, instead: int) -> None:
    path = tmp_path / "set.arrow"
    checksum = written(path, list(range(100, 2000, 2)), 10)
    content = bytearray(path.read_bytes())
    at = content.index(np.uint64(1000).tobytes())
    content[at : at + 8] = np.uint64(instead).tobytes()
    path.write_bytes(content)
    right = 0
    for key in range(90, 2010):
        try:
            [found] = held_by(path, checksum, np.array([key], np.uint64))
        except CorruptFile:
            continue
        assert found == (key % 2 == 0 and 100 <= key < 2000)
        right += 1
    assert right > 1000


def _damage(path: Path, key: int) -> None:
    content = bytearray(path.read_bytes())
    at = content.index(np.uint64(4).tobytes() + np.uint64(6).tobytes())
    content[at : at + 8] = np.uint64(key).tobytes()
    path.write_bytes(content)
