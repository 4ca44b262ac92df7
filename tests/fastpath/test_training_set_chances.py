"""Inclusion probabilities, the optional third column of a training set: verified with the rest, and no burden without use."""

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpath import CorruptFile, TrainingSet, TrainingSetWriter


def write(path: Path, sizes: list[int]) -> tuple[str, list[np.ndarray]]:
    rng = np.random.default_rng(sum(sizes))
    chances = [rng.random(n, dtype=np.float32) for n in sizes]
    with path.open("wb") as out, TrainingSetWriter(out, chances=True) as writer:
        begin = 0
        for part in chances:
            writer.write(np.arange(begin, begin + len(part), dtype=np.uint64), np.ones(len(part), np.float32), part)
            begin += len(part)
    return writer.checksum, chances


@given(sizes=st.lists(st.integers(0, 30), max_size=8))
def test_chances_come_back_with_their_partitions(tmp_path_factory, sizes):
    path = tmp_path_factory.mktemp("sets") / "set.arrow"
    checksum, chances = write(path, sizes)
    found = TrainingSet.open(path, checksum)
    found.verify()
    assert found.keys().tolist() == list(range(sum(sizes)))
    for i, expected in enumerate(chances):
        told = found.chances(i)
        assert told is not None
        np.testing.assert_array_equal(told, expected)
        assert len(found.partition(i)) == 2


def test_a_damaged_chance_is_found_like_any_other_byte(tmp_path):
    path = tmp_path / "set.arrow"
    checksum, [_, second] = write(path, [40, 50])
    content = bytearray(path.read_bytes())
    at = content.find(second.tobytes())
    content[at + 5] ^= 1
    path.write_bytes(content)
    found = TrainingSet.open(path, checksum)
    assert len(found.partition(0).keys) == 40
    for ask in (found.partition, found.chances):
        with pytest.raises(CorruptFile, match="partition 1 with digest"):
            ask(1)


def test_sets_with_and_without_chances_are_different_sets(tmp_path):
    checksum, _ = write(tmp_path / "with.arrow", [40])
    out = io.BytesIO()
    with TrainingSetWriter(out) as writer:
        writer.write(np.arange(40, dtype=np.uint64), np.ones(40, np.float32))
    (tmp_path / "without.arrow").write_bytes(out.getvalue())
    assert writer.checksum != checksum
    assert TrainingSet.open(tmp_path / "without.arrow", writer.checksum).chances(0) is None
    assert TrainingSet.of(np.arange(3, dtype=np.uint64)).chances(0) is None


def test_a_set_has_chances_throughout_or_not_at_all():
    keys, weights = np.arange(3, dtype=np.uint64), np.ones(3, np.float32)
    with pytest.raises(ValueError, match="this one has none"):
        TrainingSetWriter(io.BytesIO(), chances=True).write(keys, weights)
    with pytest.raises(ValueError, match="this one has some"):
        TrainingSetWriter(io.BytesIO()).write(keys, weights, weights)
    with pytest.raises(ValueError, match="3 keys, 2 weights"):
        TrainingSetWriter(io.BytesIO(), chances=True).write(keys, weights, weights[:2])
