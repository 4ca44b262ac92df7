"""Errors of training sets are those of this package, whenever they come up."""

import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from modyn_dagster.errors import CorruptFile, WriteFailed
from modyn_dagster.selection import Partition, TrainingSet, write_training_set
from modyn_dagster.values.digest import checksum_of

KEYS = np.arange(0, 1_400, 7, dtype=np.uint64)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "sets" / "set.arrow"
    write_training_set(path, [Partition(keys, np.ones(len(keys), np.float32)) for keys in np.split(KEYS, 4)])
    return path


@pytest.mark.parametrize(
    "ask",
    [
        lambda found: found.keys(),
        lambda found: found.partition(2),
        lambda found: list(found.partitions()),
        lambda found: found.slice(90, 110),
        lambda found: found.take(np.array([120])),
        lambda found: found.verify(),
    ],
)
def test_damage_that_is_found_late_is_an_error_of_this_package(path: Path, ask: Callable[[TrainingSet], object]) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(KEYS[120:124].tobytes())] ^= 1
    path.write_bytes(content)
    found = TrainingSet.open(path)
    np.testing.assert_array_equal(found.partition(0).keys, KEYS[:50])
    with pytest.raises(CorruptFile, match=r"set\.arrow: expected partition 2 with digest"):
        ask(found)


def test_a_file_that_is_cut_short_while_it_is_read_is_an_error_of_this_package(path: Path) -> None:
    found = TrainingSet.open(path)
    found.verify()
    os.truncate(path, 1_000)
    with pytest.raises(CorruptFile, match="it has 1000 now"):
        found.take(np.array([0]))


def test_a_set_that_was_sent_to_another_process_still_raises_them(path: Path) -> None:
    sent = pickle.dumps(TrainingSet.open(path))
    path.unlink()
    with pytest.raises(CorruptFile, match="No such file"):
        pickle.loads(sent)  # noqa: S301 - of our own


def test_checksums_say_what_they_are_of(path: Path) -> None:
    with pytest.raises(CorruptFile, match="found xxh3:"):
        TrainingSet.open(path, checksum_of(path))


def test_a_set_that_cannot_be_written_leaves_what_was_there(path: Path) -> None:
    before = path.read_bytes()

    def partitions() -> Iterator[Partition]:
        yield Partition(KEYS, np.ones(len(KEYS), np.float32))
        raise OSError(28, "No space left on device")

    with pytest.raises(WriteFailed, match="No space left"):
        write_training_set(path, partitions())
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
