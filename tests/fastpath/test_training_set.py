"""A training set gives back what was written, of any partitions, by views where it can."""

import io
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpath import TrainingSet, TrainingSetWriter

lengths = st.lists(st.integers(0, 40), max_size=12)


def parts_of(sizes: list[int], *, constant: bool = False) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(len(sizes) + sum(sizes))
    keys = [rng.integers(0, 2**63, n, dtype=np.uint64) for n in sizes]
    return [(k, np.full(len(k), 2.5, np.float32) if constant else rng.random(len(k), dtype=np.float32)) for k in keys]


def write(path: Path, parts: list[tuple[np.ndarray, np.ndarray]]) -> str:
    with path.open("wb") as out, TrainingSetWriter(out) as writer:
        for keys, weights in parts:
            writer.write(keys, weights)
    return writer.checksum


def joined(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    keys, weights = zip(*parts) if parts else ((), ())
    return np.concatenate([np.empty(0, np.uint64), *keys]), np.concatenate([np.empty(0, np.float32), *weights])


@given(sizes=lengths, constant=st.booleans(), data=st.data())
def test_positions_lead_to_their_keys_and_weights_whatever_the_partitions(tmp_path_factory, sizes, constant, data):
    parts = parts_of(sizes, constant=constant)
    path = tmp_path_factory.mktemp("sets") / "set.arrow"
    checksum = write(path, parts)
    keys, weights = joined(parts)
    places = data.draw(st.lists(st.integers(0, len(keys) - 1), max_size=700)) if len(keys) else []
    positions = np.array(places, dtype=np.int64)
    for found in (TrainingSet.open(path, checksum), TrainingSet.of(keys, weights)):
        assert len(found) == len(keys)
        taken_keys, taken_weights = found.take(positions)
        np.testing.assert_array_equal(taken_keys, keys[positions])
        np.testing.assert_array_equal(taken_weights, weights[positions])
        np.testing.assert_array_equal(found.keys(), keys)
        np.testing.assert_array_equal(found.weights(), weights)


@given(sizes=lengths, data=st.data())
def test_slices_are_slices_of_the_whole(tmp_path_factory, sizes, data):
    parts = parts_of(sizes)
    path = tmp_path_factory.mktemp("sets") / "set.arrow"
    found = TrainingSet.open(path, write(path, parts))
    keys, weights = joined(parts)
    start = data.draw(st.integers(0, len(keys)))
    stop = data.draw(st.integers(start, len(keys)))
    part = found.slice(start, stop)
    np.testing.assert_array_equal(part.keys, keys[start:stop])
    np.testing.assert_array_equal(part.weights, weights[start:stop])


@pytest.mark.parametrize("shape", ["one partition", "many", "uneven"])
def test_many_positions_at_once_in_any_order(tmp_path, shape):
    sizes = {"one partition": [20_000], "many": [97] * 211, "uneven": [1] * 500 + [15_000] + [0] * 500 + [3, 4_000, 1]}[shape]
    parts = parts_of(sizes)
    found = TrainingSet.open(tmp_path / "set.arrow", write(tmp_path / "set.arrow", parts))
    keys, weights = joined(parts)
    rng = np.random.default_rng(1)
    for positions in (rng.integers(0, len(keys), 30_000), np.arange(len(keys)), np.sort(rng.integers(0, len(keys), 3_000))):
        taken = found.take(positions)
        np.testing.assert_array_equal(taken[0], keys[positions])
        np.testing.assert_array_equal(taken[1], weights[positions])


def test_partitions_are_read_only_views_of_the_map(tmp_path):
    parts = parts_of([5, 0, 7])
    found = TrainingSet.open(tmp_path / "set.arrow", write(tmp_path / "set.arrow", parts))
    assert found.n_partitions == 3
    for i, ((keys, weights), part) in enumerate(zip(parts, found.partitions(), strict=True)):
        np.testing.assert_array_equal(part.keys, keys)
        np.testing.assert_array_equal(part.weights, weights)
        assert found.partition(i) is part
    whole, inside = found.partition(2), found.slice(6, 9)
    assert np.shares_memory(inside.keys, whole.keys)
    assert np.shares_memory(inside.weights, whole.weights)
    with pytest.raises(ValueError, match="read-only"):
        whole.keys[0] = 1


def test_all_keys_are_a_copy_that_may_be_changed(tmp_path):
    found = TrainingSet.open(tmp_path / "set.arrow", write(tmp_path / "set.arrow", parts_of([5])))
    keys, weights = found.keys(), found.weights()
    keys[:], weights[:] = 0, 0
    assert found.keys().any()
    assert found.weights().any()


def test_weights_are_one_where_none_are_given():
    keys = np.array([3, 1, 2], dtype=np.uint64)
    taken = TrainingSet.of(keys).take(np.array([2, 2, 0]))
    assert taken[0].tolist() == [2, 2, 3]
    assert taken[1].tolist() == [1, 1, 1]
    assert taken[1].dtype == np.float32


@pytest.mark.parametrize("sizes", [[], [0], [0, 0, 0]], ids=str)
def test_an_empty_set_is_legal(tmp_path, sizes):
    found = TrainingSet.open(tmp_path / "set.arrow", write(tmp_path / "set.arrow", parts_of(sizes)))
    assert (len(found), found.n_partitions, len(found.keys()), len(found.slice(0, 0).keys)) == (0, len(sizes), 0, 0)
    found.verify()
    assert len(found.take(np.empty(0, np.int64))[0]) == 0
    with pytest.raises(IndexError, match="position 0 lies outside a training set of 0 samples"):
        found.take(np.zeros(1, np.int64))


@pytest.mark.parametrize("position", [-1, 9, 2**62, -(2**63)])
@pytest.mark.parametrize("place", [0, 300, 999])
def test_a_position_outside_the_set_is_named(tmp_path, position, place):
    found = TrainingSet.open(tmp_path / "set.arrow", write(tmp_path / "set.arrow", parts_of([4, 5])))
    positions = np.zeros(1_000, dtype=np.int64)
    positions[place] = position
    for _ in range(2):
        with pytest.raises(IndexError, match=f"position {position} lies outside a training set of 9 samples"):
            found.take(positions)
        # Once all partitions are read, another kernel looks at the positions.
        found.verify()


def test_a_partition_or_slice_that_is_not_there_is_refused(tmp_path):
    found = TrainingSet.open(tmp_path / "set.arrow", write(tmp_path / "set.arrow", parts_of([4, 5])))
    for i in (-1, 2):
        with pytest.raises(IndexError, match=f"partition {i} of 2"):
            found.partition(i)
    for bounds in ((-1, 2), (3, 2), (0, 10)):
        with pytest.raises(IndexError, match="lies outside a training set of 9 samples"):
            found.slice(*bounds)


def test_unsuitable_arrays_are_refused():
    keys, weights = np.arange(4, dtype=np.uint64), np.ones(4, np.float32)
    found = TrainingSet.of(keys, weights)
    with pytest.raises(ValueError, match=r"positions must be a contiguous int64\[2\], not int32"):
        found.take(np.zeros(2, np.int32))
    with pytest.raises(ValueError, match=r"keys must be a contiguous uint64\[2\]"):
        found.take_into(np.zeros(2, np.int64), np.empty(3, np.uint64), np.empty(2, np.float32))
    with pytest.raises(ValueError, match=r"weights must be a contiguous float32\[2\]"):
        found.take_into(np.zeros(2, np.int64), np.empty(2, np.uint64), np.empty(4, np.float32)[::2])
    for wrong in (
        (keys.astype(np.int64), weights),
        (keys, weights.astype(np.float64)),
        (keys[:, None], weights),
        (keys, weights[:3]),
    ):
        with pytest.raises(ValueError, match=r"keys must be|weights must be|a weight for each key"):
            TrainingSet.of(*wrong)
        with pytest.raises(ValueError, match=r"keys must be|weights must be|a weight for each key"):
            TrainingSetWriter(io.BytesIO()).write(*wrong)


@given(lengths)
def test_equal_content_gives_equal_bytes_and_any_other_another_checksum(sizes):
    def written(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[bytes, str]:
        out = io.BytesIO()
        with TrainingSetWriter(out) as writer:
            for keys, weights in parts:
                writer.write(keys, weights)
        return out.getvalue(), writer.checksum

    parts = parts_of(sizes)
    content, checksum = written(parts)
    assert written([(keys.copy(), weights.copy()) for keys, weights in parts]) == (content, checksum)
    assert checksum.startswith("xxh3:")
    assert len(parts) == 1 or written([joined(parts)])[1] != checksum
    assert written([*parts, (np.empty(0, np.uint64), np.empty(0, np.float32))])[1] != checksum
    for i, (keys, weights) in enumerate(parts):
        if len(keys):
            assert written([*parts[:i], (keys ^ np.uint64(1), weights), *parts[i + 1 :]])[1] != checksum
            assert written([*parts[:i], (keys, weights + 1), *parts[i + 1 :]])[1] != checksum


def test_strided_arrays_are_written_as_they_read(tmp_path):
    keys, weights = np.arange(10, dtype=np.uint64)[::-2], np.arange(10, dtype=np.float32)[::2]
    found = TrainingSet.open(tmp_path / "set.arrow", write(tmp_path / "set.arrow", [(keys, weights)]))
    np.testing.assert_array_equal(found.keys(), keys)
    np.testing.assert_array_equal(found.weights(), weights)


def test_a_set_is_a_plain_arrow_file_with_a_record_batch_per_partition(tmp_path):
    parts = parts_of([4, 3])
    write(tmp_path / "set.arrow", parts)
    with pa.ipc.open_file(tmp_path / "set.arrow") as reader:
        table = reader.read_all()
        assert reader.get_batch(1).num_rows == 3
        assert set(reader.get_batch_with_custom_metadata(1).custom_metadata) == {b"xxh3"}
    np.testing.assert_array_equal(table["key"].to_numpy(), joined(parts)[0])
    np.testing.assert_array_equal(table["weight"].to_numpy(), joined(parts)[1])


def test_a_set_goes_to_another_process_as_its_path_or_its_arrays(tmp_path):
    path = tmp_path / "set.arrow"
    stored = TrainingSet.open(path, write(path, parts_of([4, 3])))
    assert len(pickle.dumps(stored)) < 1_000
    for found in (stored, TrainingSet.of(*joined(parts_of([4, 3])))):
        again = pickle.loads(pickle.dumps(found))  # noqa: S301 - of our own
        assert (again.path, again.checksum) == (found.path, found.checksum)
        np.testing.assert_array_equal(again.keys(), found.keys())
        np.testing.assert_array_equal(again.weights(), found.weights())


def test_a_writer_that_failed_leaves_no_readable_set(tmp_path):
    path = tmp_path / "set.arrow"
    with pytest.raises(RuntimeError, match="out of keys"), path.open("wb") as out, TrainingSetWriter(out) as writer:
        writer.write(*parts_of([4])[0])
        raise RuntimeError("out of keys")
    with pytest.raises(Exception, match="expected a training set"):
        TrainingSet.open(path)
