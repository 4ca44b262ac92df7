"""LoRA: adapters and the head are trained, the rest keeps its bits, and a stored model holds all it needs."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.learning.pretrained import LoraSpec
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import CheckpointFile, PreviousModel, Task, TrainedModel, build_predictor
from modyn_dagster.training.models.fine_tuning.adapters import add_adapters, frozen_beside_adapters, target_layers
from modyn_dagster.training.pretrained.weights_file import read_pretrained, with_config
from tests.training.pretrained.tiny_networks import LABELS, texts, write_bert
from tests.training.pretrained.tuned_user_code import Tuned
from tests.training.table import Table, spec_of
from tests.training.trained import assert_same_bits, trained

MODEL: Final = {"factory": "tuned_user_code:tuned"}
LORA: Final = {"rank": 2, "alpha": 4, "targets": ["blocks.*"], "dropout": 0.2}
FILE: Final = "weights.safetensors"


def body_of(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix("body."): tensor for name, tensor in state.items() if name.startswith("body.")}


def adapted(weights: bool = True, lora: dict[str, Any] = LORA, **fields: Any) -> TrainingSpec:
    file = {"weights": FILE} if weights else {}
    return spec_of(**{"model": MODEL, "pretrained": file | {"lora": lora}, "batch_size": 50, "epochs": 3} | fields)


def test_only_adapters_and_the_head_change(separable: Table) -> None:
    weights = body_of(trained(separable, spec_of(model=MODEL)).state_dict)
    found = body_of(trained(separable, adapted(), initial=weights).state_dict)
    base = {name.replace(".base_layer.", "."): tensor for name, tensor in found.items() if ".lora_" not in name}
    changed = {name for name, tensor in weights.items() if not torch.equal(base[name], tensor)}
    assert changed == {"head.weight", "head.bias"}
    adapters = {name: tensor for name, tensor in found.items() if ".lora_" in name}
    assert {name: tuple(tensor.shape) for name, tensor in adapters.items()} == {
        f"blocks.{i}.lora_{part}.default.weight": shape for i in range(2) for part, shape in (("A", (2, 6)), ("B", (6, 2)))
    }
    assert all(tensor.abs().sum() > 0 for tensor in adapters.values())


def test_outputs_are_those_of_the_formula(separable: Table) -> None:
    found = trained(
        separable, adapted(lora=LORA | {"targets": ["*"]}), initial=body_of(trained(separable, adapted(False)).state_dict)
    )
    state, plain = body_of(found.state_dict), Tuned(2, 2, 6)
    merged: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if ".lora_" not in name:
            merged[name.replace(".base_layer.", ".")] = tensor
    for layer in ("stem", "blocks.0", "blocks.1"):
        a, b = (state[f"{layer}.lora_{part}.default.weight"] for part in "AB")
        merged[f"{layer}.weight"] = merged[f"{layer}.weight"] + b @ a * (4 / 2)
    plain.load_state_dict(merged)
    standardised = {name: found.state_dict[f"standardize.{name}"].numpy() for name in ("mean", "factor")}
    columns = np.column_stack([separable.columns["left"], separable.columns["right"]])
    inputs = torch.from_numpy((columns - standardised["mean"]) * standardised["factor"]).float()
    predict = build_predictor(found.architecture, found.state_dict, threads=1, source="pipeline p")
    with torch.inference_mode():
        np.testing.assert_allclose(predict(separable.samples), plain.eval()(inputs).numpy(), rtol=1e-4, atol=1e-5)


def test_a_model_goes_on_from_the_one_before_with_its_adapters(separable: Table) -> None:
    before = trained(separable, adapted(False))
    still = adapted(False, optimizer={"name": "sgd", "lr": 1e-300})
    after = trained(separable, still, previous=PreviousModel(before.state_dict, before.architecture))
    assert_same_bits(after.state_dict, before.state_dict)
    more = trained(separable, adapted(False), previous=PreviousModel(before.state_dict, before.architecture))
    changed = {name for name in before.state_dict if not torch.equal(before.state_dict[name], more.state_dict[name])}
    assert changed == {name for name in before.state_dict if ".lora_" in name or name.startswith("body.head.")}


class Killed(Exception):
    pass


class DyingFile(CheckpointFile):
    """A checkpoint after whose third writing the process is gone."""

    def save(self, *given: Any, **named: Any) -> None:
        super().save(*given, **named)
        self.written = getattr(self, "written", 0) + 1
        if self.written == 3:
            raise Killed


@pytest.mark.parametrize(
    "pretrained",
    [
        {"lora": LORA},
        pytest.param({"freeze": ["stem.*", "norm.*"]}, marks=pytest.mark.soak("laws-training")),
        pytest.param({"layer_decay": 0.5}, marks=pytest.mark.soak("laws-training")),
    ],
    ids=["lora", "freeze", "decay"],
)
def test_a_killed_training_goes_on_with_the_same_bits(separable: Table, tmp_path: Path, pretrained: dict[str, Any]) -> None:
    weights = body_of(trained(separable, spec_of(model=MODEL)).state_dict)
    spec = adapted(pretrained=pretrained | {"weights": FILE}, checkpoint={"steps": 1}, optimizer={"name": "adamw", "lr": 0.01})
    expected = trained(separable, spec, initial=weights)
    with pytest.raises(Killed):
        trained(separable, spec, initial=weights, checkpoint=DyingFile(tmp_path / "state"))
    resumed = trained(separable, spec, initial=weights, checkpoint=CheckpointFile(tmp_path / "state"))
    assert_same_bits(resumed.state_dict, expected.state_dict)
    assert resumed.record()["pretrained"] == expected.record()["pretrained"]


def test_double_precision_reaches_the_adapters(separable: Table) -> None:
    weights = body_of(trained(separable, spec_of(model=MODEL)).state_dict)
    found = body_of(trained(separable, adapted(precision="64-true"), initial=weights).state_dict)
    assert {tensor.dtype for name, tensor in found.items() if "tracked" not in name} == {torch.float64}


def test_a_network_of_transformers_is_adapted_and_stored_without_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODYN_PROJECT", str(tmp_path))
    write_bert(tmp_path / "bert")
    spec = spec_of(
        model={"name": "hf", "folder": "bert"},
        parser={"tokenizer": {"path": "bert", "length": 8}},
        pretrained={"lora": {"rank": 4, "targets": ["*.q_lin", "*.v_lin"]}},
        optimizer={"name": "adam", "lr": 0.02},
        batch_size=10,
        epochs=15,
    )
    spec = with_config(spec, tmp_path, source="pipeline p")
    weights = read_pretrained(spec, tmp_path, source="pipeline p")
    assert weights is not None
    found = trained(texts(), spec, initial=weights, task=Task("class"))
    (tmp_path / "bert" / "model.safetensors").unlink()
    kept = {name.replace(".base_layer.", "."): tensor for name, tensor in found.state_dict.items()}
    for name, tensor in weights.items():
        assert torch.equal(kept[f"body.model.distilbert.{name}"], tensor), name
    assert (outputs(found).argmax(1) == LABELS).all()


def outputs(found: TrainedModel) -> np.ndarray:
    predict = build_predictor(found.architecture, found.state_dict, threads=1, source="pipeline p")
    try:
        return predict(texts().samples)
    finally:
        predict.close()


def test_targets_are_linear_layers_below_the_head() -> None:
    network = Tuned(2, 2, 4)
    assert target_layers(network, LoraSpec(targets=["*"]), source="p") == ["stem", "blocks.0", "blocks.1"]
    beside = LoraSpec(targets=["*"], train=["stem.*", "norm.*"])
    assert target_layers(network, beside, source="p") == ["blocks.0", "blocks.1", "head"]
    frozen = add_adapters(network, beside, source="p")
    assert frozen == frozen_beside_adapters(network, beside, source="p")
    assert {name for name in frozen if "weight" in name} == {
        f"{name}.base_layer.weight" for name in ("blocks.0", "blocks.1", "head")
    }


@pytest.mark.parametrize(
    ("network", "fields", "complaint"),
    [
        (nn.Linear(2, 2), {"targets": ["*"]}, "lora.targets: fits no linear layer below the head; there are none left"),
        (Tuned(2, 2, 4), {"targets": ["norm"]}, "lora.targets: fits no linear layer below the head; there are stem, blocks.0"),
        (Tuned(2, 2, 4), {"targets": ["*"], "train": ["tail.*"]}, "lora.train: fits no parameter; there are stem.weight"),
    ],
)
def test_targets_that_fit_no_linear_layer_are_refused(network: nn.Module, fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=f"pipeline p: training.pretrained.{complaint}"):
        add_adapters(network, LoraSpec.model_validate(fields), source="pipeline p")
