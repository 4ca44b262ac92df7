"""Pretrained models that cannot be fine-tuned so are refused before anything runs, by field and with the reason."""

import sys
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from modyn_dagster.errors import ConfigError, MissingExtra
from modyn_dagster.training.models.images import Pictures, ResNet
from modyn_dagster.training.pretrained.checks import require_fine_tunable
from tests.training.pretrained.tiny_networks import write_bert, write_vit
from tests.training.pretrained.tuned_user_code import Tuned
from tests.training.trainers.test_refused import dataset, pipeline

OWN: Final = {"factory": "tuned_user_code:tuned"}
FILE: Final = "weights.safetensors"
RESNET: Final = {"name": "resnet18", "stem": "small"}
BERT: Final = {"name": "hf", "folder": "bert"}
TOKENS: Final = {"tokenizer": {"path": "bert", "length": 8}}
IMAGES: Final = {"images": {"size": [8, 8]}}


def check(project: Path, model: dict[str, Any], **training: Any) -> None:
    require_fine_tunable(pipeline(model, training=training), dataset(), project)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write_bert(tmp_path / "bert")
    write_vit(tmp_path / "vit")
    save_file(Tuned(3, 9, 6).state_dict(), tmp_path / FILE)
    save_file(Pictures((3, 8, 8), ResNet(4, stem="small")).state_dict(), tmp_path / "resnet.safetensors")
    save_file(nn.Sequential(nn.Linear(2, 2)).state_dict(), tmp_path / "linear.safetensors")
    return tmp_path


def test_models_that_can_be_fine_tuned_pass(project: Path) -> None:
    check(project, OWN, pretrained={"weights": FILE, "freeze": ["stem.*"]})
    check(project, OWN, pretrained={"weights": FILE, "lora": {"targets": ["blocks.*"]}}, features=["a", "b", "c"])
    check(project, RESNET, parser=IMAGES, pretrained={"weights": "resnet.safetensors", "freeze": ["body.stem.*"]})
    check(project, BERT, parser=TOKENS, pretrained={"lora": {"targets": ["*_lin"]}, "layer_decay": 0.9})
    check(project, {"name": "hf", "task": "image_classification", "folder": "vit"}, parser=IMAGES)
    check(project, {"name": "logistic_regression"}, pretrained={"weights": "linear.safetensors", "rename": {"0.": ""}})


def test_repositories_that_are_not_here_yet_are_not_fetched(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(project / "hub"))
    check(project, {"name": "hf", "id": "tiny/bert", "revision": "a" * 40}, parser=TOKENS)


@pytest.mark.parametrize(
    ("model", "training", "complaint"),
    [
        (OWN, {"pretrained": {"weights": "linear.safetensors"}}, "pretrained.weights: has weights of another architecture"),
        (OWN, {"pretrained": {"weights": "no.safetensors"}}, "pretrained.weights: there is no file"),
        (OWN, {"pretrained": {"freeze": ["*"]}}, "pretrained.freeze: freezes every parameter"),
        (OWN, {"pretrained": {"freeze": ["body.*"]}}, "pretrained.freeze: fits no parameter; there are stem.weight"),
        (OWN, {"pretrained": {"lora": {"targets": ["norm"]}}}, "pretrained.lora.targets: fits no linear layer"),
        ({"name": "logistic_regression"}, {"pretrained": {"lora": {"targets": ["*"]}}}, "there are none left"),
        (BERT, {"parser": TOKENS, "pretrained": {"lora": {"targets": ["query"]}}}, "there are model.distilbert.transformer"),
        ({"name": "hf", "folder": "nowhere"}, {"parser": TOKENS}, "model.folder: there is no folder"),
        ({"name": "hf", "folder": "vit"}, {"parser": TOKENS}, "model: transformers refused the configuration"),
        ({"name": "hf", "config": {"model_type": "no"}}, {"parser": TOKENS}, "model: transformers refused the configuration"),
        (
            RESNET,
            {"parser": IMAGES, "pretrained": {"weights": "linear.safetensors"}},
            "has weights of another architecture: none fits",
        ),
    ],
)
def test_what_cannot_be_fine_tuned_is_refused(
    project: Path, model: dict[str, Any], training: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=rf"pipeline p: training.*{complaint}"):
        check(project, model, **training)


def test_a_pickle_is_refused(project: Path) -> None:
    torch.save({"a": torch.ones(1)}, project / FILE)
    with pytest.raises(ConfigError, match=r"training.pretrained.weights: weights.safetensors is a pickle"):
        check(project, OWN, pretrained={"weights": FILE})


@pytest.mark.parametrize(
    ("package", "extra", "model", "training"),
    [
        ("transformers", "text", BERT, {"parser": TOKENS}),
        ("timm", "vision", {"name": "timm", "network": "resnet18"}, {"parser": IMAGES}),
        ("torchvision", "vision", {"name": "torchvision", "network": "resnet18"}, {"parser": IMAGES}),
        ("peft", "pretrained", OWN, {"pretrained": {"lora": {"targets": ["*"]}}}),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_extra(
    project: Path, monkeypatch: pytest.MonkeyPatch, package: str, extra: str, model: dict[str, Any], training: dict[str, Any]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"pip install 'modyn-dagster\[{extra}\]'"):
        check(project, model, **training)


@pytest.mark.parametrize("name", ["torchvision", "timm"])
@pytest.mark.parametrize("config", [{"weights": "DEFAULT"}, {"pretrained": True}, {"checkpoint_path": "model.bin"}])
def test_networks_of_libraries_fetch_nothing_themselves(name: str, config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"is decided by the pipeline; weights come from `pretrained.weights`"):
        pipeline({"name": name, "network": "resnet18", "config": config}, training={"parser": IMAGES})


@pytest.mark.parametrize("network", ["hf-hub:owner/name", "../resnet18", "local-dir:x"])
def test_addresses_are_no_names_of_networks(network: str) -> None:
    with pytest.raises(ConfigError, match="network"):
        pipeline({"name": "timm", "network": network}, training={"parser": IMAGES})
