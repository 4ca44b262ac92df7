"""Networks of transformers: from a folder or a hub's cache, fine-tuned, and stored so that they need neither."""

import json
import shutil
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import PreviousModel, Task, TrainedModel, build_predictor
from modyn_dagster.training.pretrained.weights_file import pretrained_files, read_pretrained, with_config
from tests.training.pretrained.tiny_networks import LABELS, change_config, images, texts, write_bert, write_resnet, write_vit
from tests.training.table import Table, spec_of
from tests.training.trained import assert_same_bits, trained

ADAM: Final = {"optimizer": {"name": "adam", "lr": 0.01}, "batch_size": 10, "epochs": 12}
STILL: Final = {"optimizer": {"name": "sgd", "lr": 1e-300}}
IMAGES: Final = {"images": {"size": [8, 8]}}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MODYN_PROJECT", str(tmp_path))
    return tmp_path


def text_spec(**fields: Any) -> TrainingSpec:
    tokenizer = {"tokenizer": {"path": "bert", "length": 8}}
    return spec_of(**{"model": {"name": "hf", "folder": "bert"}, "parser": tokenizer} | fields)


def image_spec(folder: str, **fields: Any) -> TrainingSpec:
    model = {"name": "hf", "task": "image_classification", "folder": folder, "mean": [0.5] * 3, "std": [0.5] * 3}
    return spec_of(**{"model": model, "parser": IMAGES} | fields)


def fine_tuned(table: Table, spec: TrainingSpec, project: Path, **options: Any) -> TrainedModel:
    spec = with_config(spec, project, source="pipeline p")
    initial = None if "previous" in options else read_pretrained(spec, project, source="pipeline p")
    return trained(table, spec, initial=initial, task=Task("class"), **options)


def outputs(found: TrainedModel, table: Table) -> np.ndarray:
    with_model = build_predictor(found.architecture, found.state_dict, threads=1, source="pipeline p")
    try:
        return with_model(table.samples)
    finally:
        with_model.close()


def test_a_base_network_gets_a_head_learns_and_is_stored_without_its_folder(project: Path) -> None:
    write_bert(project / "bert")
    found = fine_tuned(texts(), text_spec(**ADAM), project)
    report = found.record()["pretrained"]
    assert report["missing"] == [f"model.{name}" for name in HEAD]
    assert (report["loaded"], report["unexpected"], report["reinitialised"]) == (36, [], [])
    (project / "bert" / "model.safetensors").unlink()
    (project / "bert" / "config.json").unlink()
    assert (outputs(found, texts()).argmax(1) == LABELS).all()
    assert json.loads(json.dumps(found.architecture))["model"]["config"]["model_type"] == "distilbert"


HEAD: Final = ["classifier.bias", "classifier.weight", "pre_classifier.bias", "pre_classifier.weight"]


def test_weights_are_those_of_the_file_and_the_same_seed_gives_the_same_bits(project: Path) -> None:
    from safetensors.torch import load_file

    write_bert(project / "bert")
    found = fine_tuned(texts(), text_spec(**STILL), project)
    for name, tensor in load_file(project / "bert" / "model.safetensors").items():
        assert torch.equal(found.state_dict[f"body.model.distilbert.{name}"], tensor), name
    assert_same_bits(found.state_dict, fine_tuned(texts(), text_spec(**STILL), project).state_dict)


def test_outputs_are_those_of_transformers_itself(project: Path) -> None:
    from transformers import AutoModelForImageClassification

    write_vit(project / "vit")
    found = fine_tuned(images(), image_spec("vit", **STILL), project)
    report = found.record()["pretrained"]
    assert [(each["name"], each["file"], each["model"]) for each in report["reinitialised"]] == [
        ("model.classifier.bias", [3], [2]),
        ("model.classifier.weight", [3, 16], [2, 16]),
    ]
    network = AutoModelForImageClassification.from_pretrained(project / "vit", num_labels=2, ignore_mismatched_sizes=True)
    state = {name.removeprefix("body.model."): tensor for name, tensor in found.state_dict.items()}
    network.load_state_dict(state)
    pixels = image_spec("vit").parser
    assert pixels is not None
    from modyn_dagster.training.parsing.parser import Parsing

    parsed = torch.from_numpy(Parsing(pixels, "pipeline p")(images().samples)["features"])
    with torch.inference_mode():
        expected = network.eval()(pixel_values=(parsed.float() / 255 - 0.5) / 0.5).logits
    np.testing.assert_allclose(outputs(found, images()), expected.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.soak("laws-training")
def test_a_residual_network_is_frozen_but_for_its_head(project: Path) -> None:
    write_resnet(project / "resnet")
    spec = image_spec("resnet", pretrained={"freeze": ["model.resnet.*"]}, **ADAM)
    found = fine_tuned(images(), spec, project)
    begun = fine_tuned(images(), image_spec("resnet", pretrained={"freeze": ["model.resnet.*"]}, **STILL), project)
    changed = {name for name in found.state_dict if not torch.equal(found.state_dict[name], begun.state_dict[name])}
    assert changed == {"body.model.classifier.1.weight", "body.model.classifier.1.bias"}


@pytest.mark.soak("laws-training")
def test_a_target_has_one_output(project: Path) -> None:
    write_bert(project / "bert")
    table = texts()
    table.targets, table.labels = LABELS.astype(np.float64), None
    spec = with_config(text_spec(**ADAM), project, source="pipeline p")
    found = trained(table, spec, initial=read_pretrained(spec, project, source="pipeline p"), task=Task("target"))
    assert found.losses[-1] < found.losses[0]
    assert found.state_dict["body.model.classifier.weight"].shape == (1, 16)


def test_a_model_goes_on_from_the_one_before_without_the_weights_of_the_folder(project: Path) -> None:
    write_bert(project / "bert")
    before = fine_tuned(texts(), text_spec(**ADAM), project)
    (project / "bert" / "model.safetensors").unlink()
    previous = PreviousModel(before.state_dict, before.architecture)
    after = fine_tuned(texts(), text_spec(**STILL), project, previous=previous)
    assert_same_bits(after.state_dict, before.state_dict)


@pytest.mark.soak("laws-training")
def test_a_configuration_alone_makes_fresh_weights(project: Path) -> None:
    write_bert(project / "bert")
    config = json.loads((project / "bert" / "config.json").read_text())
    found = fine_tuned(texts(), text_spec(model={"name": "hf", "config": config}, **ADAM), project)
    assert "pretrained" not in found.record()
    assert found.losses[-1] < found.losses[0]


@pytest.mark.soak("laws-training")
def test_padding_changes_no_output(project: Path) -> None:
    write_bert(project / "bert")
    found = fine_tuned(texts(), text_spec(**STILL), project)
    longer = found.architecture | {"parser": {"tokenizer": {"path": "bert", "length": 12}}}
    longer["features"] = longer["features"] | {"shape": [12]}
    wide = build_predictor(longer, found.state_dict, threads=1, source="pipeline p")
    np.testing.assert_allclose(wide(texts().samples), outputs(found, texts()), rtol=1e-5, atol=1e-6)
    wide.close()


def test_a_commit_of_the_hub_is_read_from_the_local_cache(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    commit = "a" * 40
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(project / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    write_bert(project / "bert")
    shutil.copytree(project / "bert", project / "hub" / "models--tiny--bert" / "snapshots" / commit)
    spec = text_spec(model={"name": "hf", "id": "tiny/bert", "revision": commit}, **STILL)
    assert_same_bits(fine_tuned(texts(), spec, project).state_dict, fine_tuned(texts(), text_spec(**STILL), project).state_dict)
    missing = text_spec(model={"name": "hf", "id": "tiny/other", "revision": commit})
    with pytest.raises(ConfigError, match=r"training.model.id: revision a+ cannot be fetched.*tiny/other"):
        with_config(missing, project, source="pipeline p")


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        ({"id": "tiny/bert"}, "belong together"),
        ({"id": "tiny/bert", "revision": "main"}, "revision"),
        ({"folder": "a", "id": "b", "revision": "a" * 40}, "either `folder` or `id`"),
        ({}, "give `folder`, `id` with `revision`, or `config`"),
        ({"config": {"dim": 3}}, "needs `model_type`"),
        ({"folder": "a", "mean": [0.5]}, "`mean` and `std` together"),
        ({"id": "../etc", "revision": "a" * 40}, "id"),
    ],
)
def test_a_spec_that_names_no_network_for_certain_is_refused(model: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        text_spec(model={"name": "hf"} | model)


def test_inputs_of_another_kind_are_refused() -> None:
    with pytest.raises(ValidationError, match="hf takes tokens for this task"):
        text_spec(parser=IMAGES)
    with pytest.raises(ValidationError, match="hf takes images"):
        image_spec("vit", parser=None)


def test_folders_without_what_is_needed_are_refused(project: Path) -> None:
    for name, complaint in (("../out", "below the project's"), ("nowhere", "there is no folder")):
        with pytest.raises(ConfigError, match=f"training.model.folder: .*{complaint}"):
            with_config(text_spec(model={"name": "hf", "folder": name}), project, source="pipeline p")
    folder = write_bert(project / "bert")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"has no weights as safetensors \(others: pytorch_model.bin\); pickles are not read"):
        pretrained_files(text_spec(), project, source="pipeline p")
    for content, complaint in (("{", "is no JSON"), ("{}", "names no `model_type`")):
        (folder / "config.json").write_text(content)
        with pytest.raises(ConfigError, match=complaint):
            with_config(text_spec(), project, source="pipeline p")
    (folder / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"has no config.json"):
        with_config(text_spec(), project, source="pipeline p")


def test_code_of_a_repository_is_never_run(project: Path) -> None:
    folder = write_bert(project / "bert")
    (folder / "own.py").write_text("raise SystemExit('this code ran')")
    change_config(folder, auto_map={"AutoModelForSequenceClassification": "own.Own"}, model_type="own")
    with pytest.raises(ConfigError, match=r"training.model: transformers refused the configuration"):
        fine_tuned(texts(), text_spec(), project)
    change_config(folder, model_type="distilbert")
    assert fine_tuned(texts(), text_spec(**STILL), project).losses


def test_weights_of_another_architecture_are_refused(project: Path) -> None:
    write_bert(project / "bert")
    write_vit(project / "vit")
    shutil.copy(project / "vit" / "model.safetensors", project / "bert" / "model.safetensors")
    with pytest.raises(ConfigError, match=r"training.model.folder: has weights of another architecture: none fits"):
        fine_tuned(texts(), text_spec(), project)
