"""Several targets of a sample: read from every format in every way to the same bits, and named where they are none."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fastpath import TrainingSet
from modyn_dagster.data.reader import SampleReader
from modyn_dagster.data.samples import Samples
from modyn_dagster.errors import TrainingError
from modyn_dagster.keys import KeyArray
from modyn_dagster.training import FastPath, Task, TrainingData, train
from tests.training.table import Table, spec_of
from tests.training.test_streamed import SIZES, WAYS, fixed_rows, parquet
from tests.training.trained import assert_same_bits, trained

MakeReader = Callable[[Path], tuple[SampleReader, dict[str, Any]]]

COLUMNS = {"fixed_rows": (fixed_rows, ["kind", "b"]), "parquet": (parquet, ["kind", "x"])}


class InMemory:
    """All samples of a reader, read before."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def read(self, keys: KeyArray) -> Samples:
        rows, whole = np.searchsorted(self._samples.keys, keys), self._samples
        columns = {name: values[rows] for name, values in whole.columns.items()}
        return replace(whole, keys=keys, times=whole.times[rows], labels=None, targets=None, columns=columns)


def spec_for(columns: list[str], **fields: Any) -> Any:
    return spec_of(task={"kind": "multi_output", "columns": columns}, epochs=2, batch_size=32, **fields)


@pytest.mark.parametrize("name", COLUMNS)
def test_every_way_of_reading_gives_the_bits_of_samples_in_memory(name: str, tmp_path: Path) -> None:
    make, columns = COLUMNS[name]
    reader, _ = make(tmp_path)
    with reader.store:
        keys = np.concatenate([np.arange(n, dtype=np.uint64) + (np.uint64(i) << np.uint64(32)) for i, n in enumerate(SIZES)])
        samples, spec = reader.read(keys), spec_for(columns)
        found = [fitted(reader, keys, way, spec) for way in WAYS]
    for each in found[1:]:
        assert_same_bits(each, found[0])
    held = TrainingData(TrainingSet.of(keys, np.ones(len(keys), np.float32)), InMemory(samples), WAYS[0])
    expected = train(spec, held, task=Task("target"), seed=3, threads=1, source="p").state_dict
    assert_same_bits(found[0], expected)


def fitted(reader: SampleReader, keys: Any, way: FastPath, spec: Any) -> dict[str, torch.Tensor]:
    data = TrainingData(TrainingSet.of(keys, np.ones(len(keys), np.float32)), reader, way)
    return train(spec, data, task=Task("target"), seed=3, threads=1, source="p").state_dict


def test_learnt_columns_are_no_features() -> None:
    rng = np.random.default_rng(0)
    x, y, z = rng.normal(size=(3, 100))
    found = trained(Table({"x": x, "y": y, "z": z}, targets=y), spec_for(["y", "z"]), task=Task("target"))
    assert found.state_dict["body.weight"].shape == (2, 1)


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        (["y", "nowhere"], r"training\.task\.columns: the samples have no column 'nowhere'; they have x, y, name"),
        (["y", "name"], r"column 'name' is .*, expected a number per sample"),
    ],
)
def test_columns_that_are_no_truth_are_named(columns: list[str], rule: str) -> None:
    names = np.array(["a", "b"] * 10, dtype=object)
    table = Table({"x": np.arange(20.0), "y": np.arange(20.0), "name": names}, targets=np.arange(20.0))
    with pytest.raises(TrainingError, match=rule):
        trained(table, spec_for(columns, features=["x"]), task=Task("target"))


def test_a_missing_target_is_named_with_its_key() -> None:
    values = np.arange(20.0)
    table = Table({"x": values, "y": values, "z": np.where(values == 7, np.nan, values)}, targets=values)
    with pytest.raises(TrainingError, match=rf"the sample with key {table.keys[7]} has no label"):
        trained(table, spec_for(["y", "z"], features=["x"]), task=Task("target"))
