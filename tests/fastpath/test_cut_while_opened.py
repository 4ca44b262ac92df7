"""Files that are cut short in the moment in which they are opened or first touched: an error, never the end of the process."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpath.format.mapped_files
from fastpath import CorruptFile, TrainingSet, TrainingSetWriter
from fastpath.format.index import BatchIndex
from fastpath.format.training_set_file import TrainingSetFile
from tests.fastpath.made_store import MadeBatch, MadeStore, PlacedSample

PAGE = 4096


def then_cut(call: Callable[..., Any], path: Path, length: int) -> Callable[..., Any]:
    """The same call; somebody cuts the file right after it."""

    def called(*arguments: Any) -> Any:
        found = call(*arguments)
        os.truncate(path, length)
        return found

    return called


@pytest.fixture
def index(tmp_path: Path) -> Path:
    # Places one by one: the index has several pages of values between its metadata.
    samples = [PlacedSample(0, i % 3, i.to_bytes(8, "little")) for i in range(2000)]
    return MadeStore(tmp_path, [MadeBatch(0, samples, compress=False)]).indexes[0]


@pytest.fixture
def training_set(tmp_path: Path) -> Path:
    path = tmp_path / "set.arrow"
    with path.open("wb") as out, TrainingSetWriter(out) as writer:
        for start in range(0, 8_000, 2_000):
            writer.write(np.arange(start, start + 2_000, dtype=np.uint64), np.ones(2_000, dtype=np.float32))
    return path


def test_an_index(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = index.read_bytes()
    opened = fastpath.format.mapped_files.open_verified
    for length in range(0, len(content), PAGE):
        index.write_bytes(content)
        with monkeypatch.context() as patch:
            patch.setattr("fastpath.format.index.open_verified", then_cut(opened, index, length))
            with pytest.raises(CorruptFile, match=r"0\.arrow"):
                BatchIndex.open(index)


def test_a_training_set(training_set: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = training_set.read_bytes()
    for length in range(0, len(content), PAGE):
        training_set.write_bytes(content)
        with monkeypatch.context() as patch:
            patch.setattr(TrainingSetFile, "_map", then_cut(TrainingSetFile._map, training_set, length))
            with pytest.raises(CorruptFile, match=r"set\.arrow"):
                TrainingSet.open(training_set)


def test_a_partition_that_is_touched_first(training_set: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = training_set.read_bytes()
    for length in range(0, len(content), PAGE):
        training_set.write_bytes(content)
        opened = TrainingSet.open(training_set)
        with monkeypatch.context() as patch:
            patch.setattr(TrainingSetFile, "check_unchanged", then_cut(TrainingSetFile.check_unchanged, training_set, length))
            with pytest.raises(CorruptFile, match=r"set\.arrow"):
                opened.verify()
