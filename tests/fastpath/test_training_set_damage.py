"""Damaged training sets: the right keys, or an error that names the file."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpath import CorruptFile, StoreError, TrainingSet, TrainingSetWriter
from tests.fastpath.sound_files import CHECKSUM, CONTENT, KEYS, WEIGHTS, training_set, write_announced, write_table


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "set.arrow"
    path.write_bytes(CONTENT)
    return path


def damage(path: Path, key: int) -> None:
    """Flip a bit of one key, where it stands in the file."""
    content = bytearray(path.read_bytes())
    # Eight bytes of their own: keys are multiples of 7 that nothing else in the file looks like.
    at = content.index(KEYS[key : key + 4].tobytes())
    content[at] ^= 1
    path.write_bytes(content)


def test_a_damaged_partition_is_found_when_it_is_touched_and_not_before(path):
    damage(path, 1_500)
    found = TrainingSet.open(path, CHECKSUM)
    np.testing.assert_array_equal(found.partition(0).keys, KEYS[:1_000])
    np.testing.assert_array_equal(found.take(np.array([0, 2_999]))[0], KEYS[[0, 2_999]])
    np.testing.assert_array_equal(found.slice(2_000, 2_010).keys, KEYS[2_000:2_010])
    for touch in (
        lambda: found.partition(1),
        lambda: found.slice(990, 1_010),
        lambda: found.take(np.array([0, 1_999])),
        found.verify,
        found.keys,
    ):
        with pytest.raises(CorruptFile, match=r"set\.arrow: expected partition 1 with digest"):
            touch()


def test_any_number_of_threads_find_the_same_damage_and_the_rest_is_right(path):
    damage(path, 1_500)
    found = TrainingSet.open(path, CHECKSUM)

    def attempt(_: int) -> str:
        with pytest.raises(CorruptFile) as caught:
            found.take(np.arange(3_000))
        return str(caught.value)

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(attempt, range(32)))) == 1
    np.testing.assert_array_equal(found.slice(2_000, 3_000).keys, KEYS[2_000:])


def test_many_threads_share_the_first_touch(path):
    found = TrainingSet.open(path, CHECKSUM)
    rng = np.random.default_rng(0)
    positions = [rng.permutation(3_000) for _ in range(24)]
    with ThreadPoolExecutor(8) as threads:
        for asked, (keys, weights) in zip(positions, threads.map(found.take, positions)):
            np.testing.assert_array_equal(keys, KEYS[asked])
            np.testing.assert_array_equal(weights, WEIGHTS[asked])


@given(st.integers(0, len(CONTENT) - 1), st.integers(1, 255))
def test_any_changed_byte_is_found_or_harms_nothing(tmp_path_factory, at, flipped):
    path = tmp_path_factory.mktemp("sets") / "set.arrow"
    content = bytearray(CONTENT)
    content[at] ^= flipped
    path.write_bytes(content)
    try:
        found = TrainingSet.open(path, CHECKSUM)
        keys, weights = found.keys(), found.weights()
    except CorruptFile as error:
        assert error.path == str(path)
    else:
        np.testing.assert_array_equal(keys, KEYS)
        np.testing.assert_array_equal(weights, WEIGHTS)


@given(st.integers(0, len(CONTENT) - 1))
def test_a_file_of_any_other_length_is_found(tmp_path_factory, length):
    path = tmp_path_factory.mktemp("sets") / "set.arrow"
    path.write_bytes(CONTENT[:length])
    with pytest.raises(CorruptFile, match=r"set\.arrow"):
        TrainingSet.open(path, CHECKSUM)


@given(
    st.binary(max_size=300), st.sampled_from([b"", b"ARROW1\0\0", CONTENT[:64]]), st.sampled_from([b"", b"ARROW1", CONTENT[-64:]])
)
def test_anything_else_is_no_training_set(tmp_path_factory, middle, head, tail):
    path = tmp_path_factory.mktemp("sets") / "set.arrow"
    path.write_bytes(head + middle + tail)
    with pytest.raises(CorruptFile, match="expected a training set"):
        TrainingSet.open(path)


def test_a_table_of_no_samples_is_that_of_an_empty_set_whatever_else_is_there(tmp_path):
    write_table(tmp_path / "set.arrow", "")
    assert len(TrainingSet.open(tmp_path / "set.arrow")) == 0
    write_announced(tmp_path / "set.arrow", 2, 0)
    assert len(TrainingSet.open(tmp_path / "set.arrow")) == 0


def test_another_set_may_be_opened_by_who_expects_none(path):
    path.write_bytes(training_set(500)[0])
    assert TrainingSet.open(path).checksum != CHECKSUM


@pytest.mark.process
def test_a_file_that_is_cut_short_under_a_reader_is_an_error_not_a_crash(tmp_path):
    # In a process of its own: a crash would take the tests with it.
    path = tmp_path / "set.arrow"
    n = 400_000
    with path.open("wb") as out, TrainingSetWriter(out) as writer:
        for _ in range(2):
            writer.write(np.arange(n, dtype=np.uint64), np.arange(n, dtype=np.float32))
    code = """
import os, sys
import numpy as np
from fastpath import CorruptFile, TrainingSet
path, n = sys.argv[1], int(sys.argv[2])
found = TrainingSet.open(path)
found.partition(0)
os.truncate(path, 5_000_000)
for touch in (lambda: found.take(np.arange(n)), lambda: found.partition(1), found.verify):
    try:
        touch()
    except CorruptFile as error:
        print("named" if path in str(error) else error)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code, str(path), str(n)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ended.returncode, ended.stdout.split()) == (0, ["named"] * 3), ended.stderr


def test_a_file_that_is_written_to_under_a_reader_is_an_error(path):
    found = TrainingSet.open(path, CHECKSUM)
    found.verify()
    positions = np.arange(100)
    found.take(positions)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    with pytest.raises(CorruptFile, match="it was written to"):
        found.take(positions)


def test_a_file_that_is_replaced_or_removed_under_a_reader_is_still_read(path):
    found = TrainingSet.open(path, CHECKSUM)
    found.partition(0)
    path.unlink()
    path.write_bytes(training_set(500)[0])
    np.testing.assert_array_equal(found.keys(), KEYS)
    np.testing.assert_array_equal(found.take(np.arange(3_000))[1], WEIGHTS)


def test_a_set_that_is_let_go_closes_its_file(path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    sets = [TrainingSet.open(path) for _ in range(20)]
    assert len(list(Path("/proc/self/fd").iterdir())) > before
    del sets
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_a_file_cut_short_after_the_first_touch_is_corrupt_to_all_who_read(tmp_path):
    path = tmp_path / "set.arrow"
    with path.open("wb") as out:
        writer = TrainingSetWriter(out)
        writer.write(np.arange(100_000, dtype=np.uint64), np.ones(100_000, dtype=np.float32))
        writer.close()
    found = TrainingSet.open(path)
    found.verify()
    os.truncate(path, 4096)
    for read in (found.keys, found.weights, lambda: found.slice(0, 90_000), lambda: found.partition(0)):
        with pytest.raises(CorruptFile):
            read()


def test_arrays_of_a_file_that_was_cut_short_are_an_error_and_never_other_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys.npy"
    np.save(path, np.arange(1_000_000, dtype=np.uint64))
    mapped = np.load(path, mmap_mode="r")
    samples = TrainingSet.of(mapped)
    os.truncate(path, 4096)
    with pytest.raises(StoreError, match="cut short"):
        samples.take(np.array([11, 999_999, 32], np.int64))


@pytest.mark.soak("laws-fastpath")
@pytest.mark.process
@pytest.mark.parametrize("at", [-3, -20], ids=["no Arrow file", "a damaged footer"])
def test_an_interpreter_that_exits_right_after_a_damaged_file_exits_well(path: Path, at: int):
    content = bytearray(CONTENT)
    content[at] ^= 255
    path.write_bytes(content)
    # Arrow's thread, which still holds the end of the file, gets the interpreter only when someone lets go of it.
    program = """
import os, pathlib, sys
from fastpath import StoreError, TrainingSet
import fastpath.format.training_set_file
sys.setswitchinterval(0.5)
codes = set()
for _ in range(30):
    if not (child := os.fork()):
        try:
            TrainingSet.open(pathlib.Path(sys.argv[1]))
        except StoreError:
            sys.exit(3)
    codes.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(codes)
"""
    found = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout == "{3}\n", found.stderr
