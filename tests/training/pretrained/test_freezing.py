"""Frozen parameters keep their bits, and learning rates fall from layer to layer."""

from typing import Any, Final

import pytest
import torch
from torch import nn

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.learning.optimizers import CustomOptimizerSpec, OptimizerSpec
from modyn_dagster.training.loop.optimizers import build_optimizers
from tests.training.pretrained.tuned_user_code import Tuned
from tests.training.table import Table, spec_of
from tests.training.trained import trained

MODEL: Final = {"factory": "tuned_user_code:tuned"}
BEFORE_THE_FIRST_STEP: Final = {"name": "sgd", "lr": 1e-30}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"optimizer": {"name": "adamw", "weight_decay": 0.1}, "ema": {"decay": 0.5}, "clip": {"norm": 0.1}},
        {"early_stopping": {}, "precision": "bf16-mixed"},
        {"downsampling": {"mode": "sample_then_batch", "ratio": 0.5, "policy": "loss"}},
        {"precision": "64-true", "accumulate": 2},
    ],
)
def test_frozen_parameters_and_the_statistics_of_frozen_batch_norm_keep_their_bits(
    separable: Table, fields: dict[str, Any]
) -> None:
    spec = spec_of(model=MODEL, pretrained={"freeze": ["stem.*", "norm.*"]}, epochs=2, **fields)
    still = spec_of(model=MODEL, pretrained={"freeze": ["stem.*", "norm.*"]}, optimizer=BEFORE_THE_FIRST_STEP)
    options: dict[str, Any] = {"calibrate": separable.data()} if "early_stopping" in fields else {}
    begun, ended = trained(separable, still).state_dict, trained(separable, spec, **options).state_dict
    assert list(begun) == list(ended)
    same = {name for name in begun if torch.equal(begun[name].to(ended[name].dtype), ended[name])}
    assert same >= {"body.stem.weight", "body.stem.bias", "body.norm.running_mean", "body.norm.running_var"}
    assert {"body.head.weight", "body.blocks.0.weight"}.isdisjoint(same)


def test_batch_norm_of_a_stem_that_is_only_partly_frozen_follows_the_samples(separable: Table) -> None:
    spec = spec_of(model=MODEL, pretrained={"freeze": ["norm.weight"]})
    ended = trained(separable, spec).state_dict
    assert not torch.equal(ended["body.norm.running_mean"], torch.zeros(6))


@pytest.mark.parametrize(
    ("patterns", "complaint"), [(["stem.*", "no.*"], r"fits no parameter; there are stem.weight.*'no\.\*'"), (["*"], "every")]
)
def test_patterns_that_fit_nothing_or_everything_are_refused(separable: Table, patterns: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"pipeline p: training.pretrained.freeze: .*{complaint}"):
        trained(separable, spec_of(model=MODEL, pretrained={"freeze": patterns}))


def rates(network: nn.Module, *specs: Any, decay: float = 0.5) -> dict[str, float]:
    """Learning rate of every parameter, by its name."""
    names = {parameter: name for name, parameter in network.named_parameters()}
    optimizers = build_optimizers(specs, network, source="pipeline p", layer_decay=decay)
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    found = [(names[parameter], group["lr"]) for group in groups for parameter in group["params"]]
    assert len(found) == len(dict(found))
    return dict(found)


def test_rates_fall_from_the_head_through_the_blocks_to_the_stem() -> None:
    found = rates(Tuned(2, 2, 4), OptimizerSpec(name="sgd", lr=1.0))
    assert {name: rate for name, rate in found.items() if name.endswith("weight")} == {
        "stem.weight": 0.125,
        "norm.weight": 0.125,
        "blocks.0.weight": 0.25,
        "blocks.1.weight": 0.5,
        "head.weight": 1.0,
    }


def test_rates_compose_with_groups_and_several_optimizers() -> None:
    one = OptimizerSpec.model_validate({"name": "sgd", "lr": 1.0, "parameters": ["stem.*", "blocks.*"]})
    two = OptimizerSpec.model_validate({"name": "adam", "lr": 0.1, "groups": [{"parameters": ["norm.*"], "lr": 8.0}]})
    found = rates(Tuned(2, 2, 4), one, two)
    assert (found["blocks.1.bias"], found["norm.bias"], found["head.bias"]) == (0.5, 1.0, 0.1)
    own = CustomOptimizerSpec.model_validate({"factory": "torch.optim:SGD", "config": {"lr": 2.0}})
    assert rates(Tuned(2, 2, 4), own)["stem.bias"] == 0.25


def test_frozen_layers_count_as_layers() -> None:
    network = Tuned(2, 2, 4)
    network.blocks.requires_grad_(requires_grad=False)
    assert rates(network, OptimizerSpec(name="sgd", lr=1.0))["stem.weight"] == 0.125


def test_an_optimizer_of_ones_own_needs_a_rate_to_decay() -> None:
    own = CustomOptimizerSpec.model_validate({"factory": "torch.optim:SGD"})
    with pytest.raises(ConfigError, match=r"pipeline p: training.pretrained.layer_decay: .*needs a learning rate"):
        rates(Tuned(2, 2, 4), own)


def test_a_training_uses_the_rates_of_layers(separable: Table) -> None:
    spec = {"model": MODEL, "optimizer": {"name": "sgd", "lr": 0.1}}
    plain, decayed = spec_of(**spec), spec_of(**spec, pretrained={"layer_decay": 1e-12})
    begun, ended = trained(separable, spec_of(model=MODEL, optimizer=BEFORE_THE_FIRST_STEP)), trained(separable, decayed)
    torch.testing.assert_close(ended.state_dict["body.stem.weight"], begun.state_dict["body.stem.weight"])
    assert not torch.equal(ended.state_dict["body.head.weight"], begun.state_dict["body.head.weight"])
    assert not torch.equal(trained(separable, plain).state_dict["body.stem.weight"], begun.state_dict["body.stem.weight"])
