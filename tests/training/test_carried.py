"""State that a training takes over: that of optimizers, and weights out of a file."""

from typing import Any

import pytest
import torch

from modyn_dagster.errors import ConfigError
from modyn_dagster.training import PreviousModel
from tests.training.table import Table, spec_of
from tests.training.trained import assert_same_bits, trained, weights_of

MLP = {"name": "mlp", "hidden": [4]}


def test_carried_optimizers_go_on_as_if_there_had_been_no_end(separable: Table) -> None:
    """Two epochs in one training, or one after the other: in the order of the set, so that the batches are the same."""
    common: dict[str, Any] = {"optimizer": {"name": "adam", "lr": 0.1}, "shuffle": False, "batch_size": 50}
    carrying: dict[str, Any] = {"use_previous_model": True, "carry_optimizer": True} | common
    first = trained(separable, spec_of(epochs=1, **carrying))
    assert first.optimizers is not None
    given = PreviousModel(first.state_dict, first.architecture, first.optimizers)
    both = trained(separable, spec_of(epochs=2, **common))
    assert_same_bits(trained(separable, spec_of(epochs=1, **carrying), previous=given).state_dict, both.state_dict)
    fresh = trained(separable, spec_of(epochs=1, **common), previous=PreviousModel(first.state_dict, first.architecture))
    assert not torch.equal(weights_of(fresh), weights_of(both))


def test_optimizer_states_that_do_not_fit_are_refused(separable: Table) -> None:
    carrying = {"use_previous_model": True, "carry_optimizer": True}
    first = trained(separable, spec_of(**carrying))
    assert first.optimizers is not None
    for states, complaint in (
        (first.optimizers * 2, "2 optimizers, there are 1"),
        (first.optimizers, "other parameters or groups"),
    ):
        spec = spec_of(optimizer={"groups": [{"parameters": ["weight"]}]}, **carrying)
        with pytest.raises(ConfigError, match=f"pipeline p: training.carry_optimizer: .*{complaint}"):
            trained(separable, spec, previous=PreviousModel(first.state_dict, first.architecture, states))


def test_training_starts_from_given_weights(separable: Table) -> None:
    before = trained(separable, spec_of(epochs=3))
    still = spec_of(optimizer={"name": "sgd", "lr": 1e-30}, initial_weights="file.safetensors")
    bare = {name.removeprefix("body."): tensor for name, tensor in before.state_dict.items() if name.startswith("body.")}
    for weights in (before.state_dict, bare):
        assert_same_bits(trained(separable, still, initial=weights).state_dict, before.state_dict)
    with pytest.raises(ConfigError, match=r"pipeline p: training.initial_weights: does not fit the model"):
        trained(separable, still.model_copy(update={"model": spec_of(model=MLP).model}), initial=bare)
