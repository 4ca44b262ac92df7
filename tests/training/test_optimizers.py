"""Optimizers and groups of parameters: against torch's own, over all names."""

from typing import Any, get_args

import pytest
import torch
from torch import nn

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.learning.optimizers import OptimizerName
from modyn_dagster.training.loop.optimizers import OPTIMIZERS, build_optimizers
from tests.training.table import Table, spec_of
from tests.training.trained import assert_same_bits, trained

pytestmark = pytest.mark.usefixtures("user_code")

MLP = {"name": "mlp", "hidden": [4]}


@pytest.mark.parametrize("name", get_args(OptimizerName))
def test_every_name_learns_and_is_torchs_own(separable: Table, name: str) -> None:
    found = trained(separable, spec_of(optimizer={"name": name, "lr": 0.01}, epochs=3, batch_size=50))
    assert found.losses[-1] < found.losses[0]
    assert OPTIMIZERS[name].__module__.startswith("torch.optim")  # type: ignore[index]  # a name of the mapping


def test_further_arguments_reach_the_torch_class(separable: Table) -> None:
    plain = trained(separable, spec_of(optimizer={"name": "adam", "lr": 0.1}))
    same = trained(separable, spec_of(optimizer={"name": "adam", "lr": 0.1, "config": {"betas": [0.9, 0.999]}}))
    other = trained(separable, spec_of(optimizer={"name": "adam", "lr": 0.1, "config": {"betas": [0.5, 0.9]}}, batch_size=50))
    assert_same_bits(plain.state_dict, same.state_dict)
    assert not torch.equal(plain.state_dict["body.weight"], other.state_dict["body.weight"])


def test_groups_get_their_parameters_once_and_the_others_keep_the_optimizers_settings() -> None:
    body = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    groups = [{"parameters": ["0.weight", "1.weight"], "lr": 0.5}, {"parameters": ["0.*"], "weight_decay": 0.1}]
    (optimizer,) = build_optimizers(spec_of(optimizer={"name": "sgd", "lr": 0.1, "groups": groups}).optimizers, body, source="p")
    found = [([id(p) for p in group["params"]], group["lr"], group["weight_decay"]) for group in optimizer.param_groups]
    assert found == [
        ([id(body[0].weight), id(body[1].weight)], 0.5, 0.0),
        ([id(body[0].bias)], 0.1, 0.1),
        ([id(body[1].bias)], 0.1, 0.0),
    ]


def test_one_optimizer_in_groups_of_equal_settings_is_one_optimizer(separable: Table) -> None:
    fields: dict[str, Any] = {"model": MLP, "epochs": 2, "batch_size": 40}
    whole = trained(separable, spec_of(optimizer={"name": "sgd", "lr": 0.1, "momentum": 0.9}, **fields))
    sgd = {"name": "sgd", "lr": 0.1, "momentum": 0.9}
    grouped = trained(separable, spec_of(optimizer=sgd | {"groups": [{"parameters": ["0.*"]}]}, **fields))
    several = trained(separable, spec_of(optimizer=[sgd | {"parameters": ["*.bias"]}, sgd], **fields))
    assert_same_bits(whole.state_dict, grouped.state_dict)
    assert_same_bits(whole.state_dict, several.state_dict)


@pytest.mark.parametrize(
    ("optimizer", "complaint"),
    [
        ({"groups": [{"parameters": ["head.*"]}]}, r"training.optimizer.groups\[0\].parameters: fits no parameter; .*0.weight"),
        ([{"parameters": ["0.*"]}], r"training.optimizer: takes no 2.weight, 2.bias"),
        ([{}, {"parameters": ["0.*"]}], r"training.optimizer\[1\].parameters: fits no parameter"),
        ([{}, {}], r"training.optimizer\[1\]: the optimizers before it take all parameters"),
        ({"config": {"speed": 3}}, r"training.optimizer.config: adam refused it: .*speed"),
        ([{"name": "sgd", "config": {"dampening": 1, "nesterov": True}}], r"training.optimizer.config: sgd refused it"),
        ({"scheduler": {"name": "cosine", "config": {"x": 1}}}, r"training.optimizer.scheduler.config: cosine refused it"),
        (
            {"scheduler": {"factory": "training_user_code:no_scheduler"}},
            r"training.optimizer.scheduler.factory: must return a scheduler; a object has no step",
        ),
        (
            {"scheduler": {"factory": "training_user_code:halving", "config": {"x": 1}}},
            r"training.optimizer.scheduler.config: training_user_code:halving refused it",
        ),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_the_field(separable: Table, optimizer: Any, complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"pipeline p: {complaint}"):
        trained(separable, spec_of(model=MLP, optimizer=optimizer))


@pytest.mark.parametrize(
    ("optimizer", "complaint"),
    [
        ({"name": "adam", "momentum": 0.9}, "momentum is a setting of sgd and rmsprop"),
        ({"name": "lion"}, "optimizer.Named.name"),
        ({"scheduler": {"name": "one_cycle", "warmup": 3}}, "one_cycle warms up by itself"),
        ([], "at least 1"),
    ],
)
def test_a_spec_that_cannot_be_meant_is_refused(optimizer: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        spec_of(optimizer=optimizer)
