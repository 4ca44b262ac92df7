"""Quantiles that cross: sorted wherever they are predicted, and untouched in training."""

import numpy as np
import pytest
import torch

from modyn_dagster.training import Task, build_predictor
from modyn_dagster.training.module import build_module, spec_of_architecture
from tests.training.table import Table, spec_of
from tests.training.trained import trained

LEVELS = [0.1, 0.5, 0.9]


def table() -> Table:
    rng = np.random.default_rng(0)
    values = rng.normal(size=400)
    return Table({"x": values}, targets=values + rng.normal(size=400))


def test_crossing_quantiles_are_sorted_by_predictors_and_exported_modules() -> None:
    spec = spec_of(task={"kind": "quantiles", "quantiles": LEVELS}, standardize=False)
    found = trained(table(), spec, task=Task("target"))
    assert found.architecture["n_outputs"] == len(LEVELS)
    crossing = found.state_dict | {"body.bias": torch.tensor([5.0, 0.0, -5.0])}
    assert set(crossing) == set(found.state_dict)
    samples = table().samples
    inputs = torch.tensor(samples.columns["x"], dtype=torch.float32)[:, None]
    raw = torch.nn.functional.linear(inputs, crossing["body.weight"], crossing["body.bias"])
    assert (raw.diff(dim=1) < 0).any()
    expected = raw.sort(dim=1).values.numpy()
    predictor = build_predictor(found.architecture, crossing, threads=1, source="p")
    np.testing.assert_array_equal(predictor(samples), expected)
    predictor.close()
    module = build_module(found.architecture)
    module.load_state_dict(crossing)
    _, layout = spec_of_architecture(found.architecture)
    with torch.inference_mode():
        np.testing.assert_array_equal(module({layout.inputs[0].name: inputs}), expected)


@pytest.mark.parametrize("level", LEVELS)
def test_a_constant_model_learns_the_quantile_of_the_targets(level: float) -> None:
    targets = np.random.default_rng(1).exponential(size=1000)
    data = Table({"x": np.zeros(1000)}, targets=targets)
    optimizer = {"name": "sgd", "lr": 0.5}
    spec = spec_of(
        task={"kind": "quantiles", "quantiles": [level]}, epochs=60, batch_size=100, optimizer=optimizer, standardize=False
    )
    found = trained(data, spec, task=Task("target"))
    share = float((targets <= found.state_dict["body.bias"].item()).mean())
    assert share == pytest.approx(level, abs=0.06)
