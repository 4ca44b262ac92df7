"""Taps of a model at work: the values that can be seen."""

import numpy as np
import pytest
import torch
from torch import nn

from modyn_dagster.data.samples import Samples
from modyn_dagster.errors import ConfigError, WrongShape
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.data import COLUMNS, EMBEDDING, OUTPUTS
from modyn_dagster.training.inputs.features import Features
from modyn_dagster.training.models.layout import Layout
from modyn_dagster.training.models.network import Network
from modyn_dagster.training.parsing.parser import Parsing
from modyn_dagster.training.predictor import ComputeSettings, Predictor
from modyn_dagster.training.transforms.chain import Transforms
from modyn_dagster.training.transforms.labels import Relabeling

N = 6


class Branches(nn.Module):
    """Two layers in a row, one that takes no part, one whose output is changed in place, and one that returns a pair."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 2)
        self.first = nn.Linear(2, 4)
        self.idle = nn.Linear(3, 3)
        self.change = nn.ReLU(inplace=True)
        self.memory = nn.GRU(4, 4, batch_first=True)

    def forward(self, columns: torch.Tensor) -> torch.Tensor:
        hidden = self.change(self.first(columns))
        self.memory(hidden[:, None])
        out: torch.Tensor = self.last(hidden)
        return out


def samples(seed: int = 0) -> Samples:
    points = np.random.default_rng(seed).normal(size=(2, N))
    columns = {"x": points[0], "y": points[1]}
    times = np.zeros(N, dtype="datetime64[us]")
    return Samples(np.arange(N, dtype=np.uint64), times, np.zeros(N, dtype=np.int64), None, columns)


def predictor(body: nn.Module) -> Predictor:
    spec = TrainingSpec.model_validate({"model": {"name": "logistic_regression"}})
    parsing = Parsing(None, "pipeline p", None)
    features = Features.of(spec, samples(), parsing, exclude=())
    network = Network(body, features.layout, standardize=True, double=False)
    assert isinstance(features.layout, Layout)
    transforms, relabeling = Transforms(spec, "pipeline p"), Relabeling(None, "class", "pipeline p")
    return Predictor(network, features, 2, settings=ComputeSettings("cpu", 1, True), transforms=transforms, relabeling=relabeling)


def test_one_pass_shows_columns_embeddings_modules_and_outputs():
    torch.manual_seed(0)
    body = Branches()
    given = samples()
    at_work = predictor(body)
    shown = at_work.tapped(given, {OUTPUTS, COLUMNS, EMBEDDING, "first", "memory"})
    columns = np.stack([given.columns["x"], given.columns["y"]], axis=1).astype(np.float32)
    np.testing.assert_array_equal(shown[COLUMNS], columns, "a standardisation that was never fitted changes nothing")
    with torch.inference_mode():
        first = body.first(torch.from_numpy(columns))
    np.testing.assert_allclose(shown["first"], first.numpy(), rtol=1e-6)
    assert (shown["first"] < 0).any(), "what is changed in place afterwards is shown as it was"
    np.testing.assert_allclose(shown[EMBEDDING], np.maximum(first.numpy(), 0), rtol=1e-6)
    np.testing.assert_array_equal(shown[OUTPUTS], at_work(given))
    assert shown["memory"].shape == (N, 4)
    assert {array.dtype for array in shown.values()} == {np.dtype(np.float32)}


def test_nothing_is_listened_to_afterwards():
    body = Branches()
    predictor(body).tapped(samples(), {EMBEDDING, "first"})
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in body.modules())


def test_a_linear_model_s_embedding_is_what_it_gets():
    shown = predictor(nn.Linear(2, 2)).tapped(samples(), {EMBEDDING, COLUMNS})
    np.testing.assert_array_equal(shown[EMBEDDING], shown[COLUMNS])


def test_a_module_that_is_not_there_or_takes_no_part_is_named():
    at_work = predictor(Branches())
    with pytest.raises(ConfigError, match=r"pipeline p: layer: the model has no such module; known: last, first"):
        at_work.tapped(samples(), {"hidden"})
    with pytest.raises(ConfigError, match="takes no part in the forward pass"):
        at_work.tapped(samples(), {"idle"})


def test_a_model_without_a_linear_layer_wants_a_module_named():
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = nn.AvgPool1d(2)

        def forward(self, columns: torch.Tensor) -> torch.Tensor:
            return torch.cat([columns, self.mean(columns[None])[0]], dim=1)[:, :2]

    with pytest.raises(ConfigError, match="no linear layer took part, name a module"):
        predictor(Sums()).tapped(samples(), {EMBEDDING})
    with pytest.raises(WrongShape, match="module 'mean'"):
        predictor(Sums()).tapped(samples(), {"mean"})
