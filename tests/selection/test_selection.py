"""Windows, uniform limits and training sets."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import CorruptFile
from modyn_dagster.keys import ORIGIN, KeyArray
from modyn_dagster.selection import KeyRange, Partition, Selection, TrainingSet, window_of, write_training_set
from modyn_dagster.selection.partitions import rechunk
from modyn_dagster.spec.selection import LastTriggers, SelectionSpec

key_sets = st.lists(st.integers(0, 2**40), unique=True, max_size=60).map(lambda ks: np.array(sorted(ks), dtype=np.uint64))


def chunked(keys: np.ndarray, size: int) -> list[np.ndarray]:
    return [keys[i : i + size] for i in range(0, len(keys), size)]


def test_windows_reach_back_to_trained_triggers_only():
    trained = [10, 20, 30]
    assert window_of("since_last_trigger", until=40, trained=trained) == KeyRange(30, 40)
    assert window_of(LastTriggers(last_triggers=1), until=40, trained=trained) == KeyRange(30, 40)
    assert window_of(LastTriggers(last_triggers=3), until=40, trained=trained) == KeyRange(10, 40)
    assert window_of(LastTriggers(last_triggers=9), until=40, trained=trained, origin=5) == KeyRange(5, 40)
    assert window_of("since_last_trigger", until=40, trained=[], origin=5) == KeyRange(5, 40)
    assert window_of("all", until=40, trained=trained, origin=5) == KeyRange(ORIGIN, 40)


@pytest.mark.soak("laws-policies")
def test_a_limit_is_uniform_over_seeds():
    keys = np.arange(50, dtype=np.uint64) + np.uint64(7 << 32)
    counts = np.zeros(50)
    for seed in range(2_000):
        [partition] = Selection(SelectionSpec(limit=10), [keys], seed=seed, trigger=0)
        counts[(partition.keys - keys[0]).astype(int)] += 1
    # Each key is kept with probability 1/5: mean 400, sigma 17.9 over 2,000 draws.
    assert np.abs(counts - 400).max() < 5 * 17.9


def test_two_triggers_of_one_run_draw_different_subsets():
    keys = np.arange(1_000, dtype=np.uint64)
    first, second = (next(iter(Selection(SelectionSpec(limit=100), [keys], seed=1, trigger=t))).keys for t in (0, 1))
    assert 0 < len(np.intersect1d(first, second)) < 40


@given(key_sets, st.integers(1, 70) | st.none(), st.integers(1, 9))
def test_weights_add_up_to_the_pool(keys, limit, size):
    selection = Selection(SelectionSpec(limit=limit, partition_size=size), chunked(keys, 7), seed=3, trigger=2)
    partitions = list(selection)
    assert selection.n_pool == len(keys)
    assert sum(float(p.weights.sum()) for p in partitions) == pytest.approx(len(keys), rel=1e-5)


@given(key_sets, st.integers(1, 9), st.integers(1, 9))
def test_partitions_have_the_size_asked_for(keys, chunk, size):
    weights = np.arange(len(keys), dtype=np.float32)
    parts = [Partition(k, w) for k, w in zip(chunked(keys, chunk), chunked(weights, chunk), strict=True)]
    found = list(rechunk(parts, size))
    assert all(len(part.keys) == size for part in found[:-1])
    assert all(1 <= len(part.keys) <= size for part in found)
    np.testing.assert_array_equal(np.concatenate([keys[:0], *(part.keys for part in found)]), keys)
    np.testing.assert_array_equal(np.concatenate([weights[:0], *(part.weights for part in found)]), weights)


def test_a_training_set_comes_back_as_it_was_written(tmp_path):
    keys = np.array([1, 5, 1 << 40], dtype=np.uint64)
    parts = [Partition(keys[:2], np.ones(2, np.float32)), Partition(keys[2:], np.full(1, 0.5, np.float32))]
    written = write_training_set(tmp_path / "a" / "0.arrow", parts)
    found = TrainingSet.open(tmp_path / "a" / "0.arrow", written.checksum)
    np.testing.assert_array_equal(found.keys(), keys)
    np.testing.assert_array_equal(found.weights(), np.array([1, 1, 0.5], np.float32))
    assert [len(p.keys) for p in found.partitions()] == [2, 1]
    assert written.n_samples == 3


def test_equal_content_gives_equal_bytes_and_an_empty_set_is_legal(tmp_path):
    for name in ("x", "y"):
        write_training_set(tmp_path / name, [Partition(np.arange(3, dtype=np.uint64), np.ones(3, np.float32))])
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()
    empty = write_training_set(tmp_path / "empty", [])
    assert len(TrainingSet.open(tmp_path / "empty", empty.checksum).keys()) == 0


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_a_damaged_training_set_is_named(tmp_path, damage):
    path = tmp_path / "set.arrow"
    written = write_training_set(path, [Partition(np.arange(50, dtype=np.uint64), np.ones(50, np.float32))])
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif damage == "truncate":
        path.write_bytes(content[:-10])
    else:
        path.unlink()
    with pytest.raises(CorruptFile, match=r"set\.arrow"):
        TrainingSet.open(path, written.checksum).keys()


def test_a_failing_source_of_keys_leaves_no_file(tmp_path):
    def keys() -> Iterator[KeyArray]:
        yield np.arange(5, dtype=np.uint64)
        raise RuntimeError("connection lost")

    with pytest.raises(RuntimeError):
        write_training_set(tmp_path / "set.arrow", Selection(SelectionSpec(partition_size=2), keys(), seed=0, trigger=0))
    assert list(tmp_path.iterdir()) == []
