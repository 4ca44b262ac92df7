"""Damaged training sets: the right keys, or an error that names the file."""

import io
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from fastpath import CorruptFile, StoreError, TrainingSet, TrainingSetWriter
from fastpath.format.training_set_file import SCHEMA

KEYS = np.arange(0, 21_000, 7, dtype=np.uint64)
WEIGHTS = (np.arange(3_000) / 3).astype(np.float32)


def content_of(size: int = 1_000) -> tuple[bytes, str]:
    out = io.BytesIO()
    with TrainingSetWriter(out) as writer:
        for start in range(0, len(KEYS), size):
            writer.write(KEYS[start : start + size], WEIGHTS[start : start + size])
    return out.getvalue(), writer.checksum


CONTENT, CHECKSUM = content_of()


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


def test_a_damaged_weight_counts_as_much_as_a_key(path):
    content = bytearray(CONTENT)
    content[content.index(WEIGHTS[2_500:2_504].tobytes())] ^= 128
    path.write_bytes(content)
    with pytest.raises(CorruptFile, match="partition 2 with digest"):
        TrainingSet.open(path, CHECKSUM).verify()


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


def test_another_set_than_the_expected_one_is_refused(path, tmp_path):
    other = tmp_path / "other.arrow"
    other.write_bytes(content_of(size=500)[0])
    with pytest.raises(CorruptFile, match=f"expected checksum {CHECKSUM}, found xxh3:"):
        TrainingSet.open(other, CHECKSUM)
    assert TrainingSet.open(other).checksum != CHECKSUM


def test_the_table_of_partitions_is_part_of_the_checksum(path):
    # The digest of a partition stands in the metadata of its record batch, and in the table behind them.
    digest = xxhash.xxh3_128_hexdigest(KEYS[:1_000].tobytes() + WEIGHTS[:1_000].tobytes()).encode()
    assert CONTENT.count(digest) == 2
    before, after = CONTENT[: CONTENT.rindex(digest)], CONTENT[CONTENT.rindex(digest) + len(digest) :]
    path.write_bytes(before + digest[::-1] + after)
    with pytest.raises(CorruptFile, match=f"expected checksum {CHECKSUM}"):
        TrainingSet.open(path, CHECKSUM)
    # Who does not know the checksum finds it when the partition is touched.
    with pytest.raises(CorruptFile, match="partition 0"):
        TrainingSet.open(path).verify()


def arrow_file(path: Path, schema: pa.Schema, columns: list[pa.Array], metadata: dict[str, str] | None = None) -> None:
    with path.open("wb") as out, pa.ipc.new_file(out, schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema), custom_metadata=metadata)


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        (pa.schema([("key", pa.uint64()), ("weight", pa.float32())]), "the columns"),
        (pa.schema([pa.field("key", pa.int64(), nullable=False), SCHEMA.field(1)]), "the columns"),
        (SCHEMA, "no table of partitions at its end"),
    ],
    ids=["nulls", "types", "no table"],
)
def test_a_foreign_arrow_file_is_refused(tmp_path, schema, found):
    columns = [pa.array([1, 2], schema.field(0).type), pa.array([1, 2], pa.float32())]
    arrow_file(tmp_path / "set.arrow", schema, columns)
    with pytest.raises(CorruptFile, match=f"expected a training set, found .*{found}"):
        TrainingSet.open(tmp_path / "set.arrow")


@pytest.mark.parametrize("table", ["", "00" * 24, "zz", "ff" * 48, "é"])
def test_an_impossible_table_is_refused(tmp_path, table):
    arrow_file(tmp_path / "set.arrow", SCHEMA, [pa.array([1], pa.uint64()), pa.array([1], pa.float32())], {"partitions": table})
    if table:
        with pytest.raises(CorruptFile, match="expected a training set"):
            TrainingSet.open(tmp_path / "set.arrow")
    else:
        assert len(TrainingSet.open(tmp_path / "set.arrow")) == 0


@pytest.mark.parametrize("n", [0, 3, 2**40, 2**64 - 1])
def test_a_partition_of_another_length_than_the_table_says_is_refused(tmp_path, n):
    path = tmp_path / "set.arrow"
    with path.open("wb") as out, pa.ipc.new_file(out, SCHEMA) as writer:
        writer.write_batch(pa.record_batch([pa.array([1, 2], pa.uint64()), pa.array([1, 2], pa.float32())], schema=SCHEMA))
        nothing = pa.record_batch([pa.array([], pa.uint64()), pa.array([], pa.float32())], schema=SCHEMA)
        writer.write_batch(nothing, custom_metadata={"partitions": n.to_bytes(8, "little").hex() + "00" * 16})
    if n == 0:
        assert len(TrainingSet.open(path)) == 0
        return
    with pytest.raises(CorruptFile, match=r"2 samples|partitions that fit|3 samples in partition 0, found 2"):
        TrainingSet.open(path).keys()


def test_compressed_values_are_refused(tmp_path):
    path = tmp_path / "set.arrow"
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with path.open("wb") as out, pa.ipc.new_file(out, SCHEMA, options=options) as writer:
        writer.write_batch(pa.record_batch([pa.array(KEYS[:1_000]), pa.array(WEIGHTS[:1_000])], schema=SCHEMA))
        nothing = pa.record_batch([pa.array([], pa.uint64()), pa.array([], pa.float32())], schema=SCHEMA)
        writer.write_batch(nothing, custom_metadata={"partitions": (1_000).to_bytes(8, "little").hex() + "00" * 16})
    with pytest.raises(CorruptFile, match="partition 0"):
        TrainingSet.open(path).keys()


@pytest.mark.parametrize("what", ["nothing", "a folder", "a pipe", "an empty file"])
def test_what_is_no_file_is_refused_at_once(tmp_path, what):
    path = tmp_path / "set.arrow"
    {"nothing": lambda p: None, "a folder": Path.mkdir, "a pipe": os.mkfifo, "an empty file": Path.touch}[what](path)
    with pytest.raises(CorruptFile, match=r"set\.arrow: expected a training set"):
        TrainingSet.open(path)


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
    path.write_bytes(content_of(size=500)[0])
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
