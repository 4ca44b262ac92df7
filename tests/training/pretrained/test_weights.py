"""Training begins with the weights of a file that fit; a report names the others."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import Tensor, nn

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import PreviousModel, Task
from modyn_dagster.training.models.fine_tuning.report import compare_shapes, load_partially, shapes_of
from modyn_dagster.training.pretrained.weights_file import read_pretrained
from tests.training.table import Table, spec_of
from tests.training.trained import assert_same_bits, trained

MODEL: Final = {"factory": "tuned_user_code:tuned"}
FILE: Final = "weights.safetensors"
STILL: Final = {"optimizer": {"name": "sgd", "lr": 1e-30}}


def tuned(**pretrained: Any) -> TrainingSpec:
    return spec_of(model=MODEL, pretrained={"weights": FILE} | pretrained, **STILL)


def first(table: Table, **fields: Any) -> dict[str, Tensor]:
    """Weights of a trained network, by their names in its module."""
    state = trained(table, spec_of(**{"model": MODEL} | fields)).state_dict
    return {name.removeprefix("body."): tensor for name, tensor in state.items() if name.startswith("body.")}


def body_of(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix("body."): tensor for name, tensor in state.items() if name.startswith("body.")}


def test_weights_that_fit_by_name_and_shape_are_taken_over_and_the_report_names_the_others(separable: Table) -> None:
    weights = first(separable)
    del weights["blocks.1.bias"]
    begun = trained(separable, tuned(), initial=weights | {"old.weight": torch.ones(2)})
    found = body_of(begun.state_dict)
    assert begun.record()["pretrained"] == {
        "loaded": len(found) - 1,
        "missing": ["blocks.1.bias"],
        "unexpected": ["old.weight"],
        "reinitialised": [],
    }
    statistics = {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    kept = weights.keys() - statistics
    assert_same_bits({name: found[name] for name in sorted(kept)}, {name: weights[name] for name in sorted(kept)})
    assert not torch.equal(found["norm.running_mean"], weights["norm.running_mean"])


def test_an_exported_model_is_read_by_the_names_of_its_body(separable: Table) -> None:
    exported = trained(separable, spec_of(model=MODEL)).state_dict
    begun = trained(separable, tuned(), initial=exported)
    assert begun.record()["pretrained"] == {"loaded": len(exported) - 2, "missing": [], "unexpected": [], "reinitialised": []}
    assert torch.equal(begun.state_dict["body.head.weight"], exported["body.head.weight"])


def test_a_head_is_replaced_where_there_are_other_classes(separable: Table) -> None:
    weights = first(separable)
    more = trained(separable, tuned(), initial=weights, task=Task("class", n_classes=5, exclude=frozenset({"label"})))
    assert more.record()["pretrained"]["reinitialised"] == [
        {"name": "head.weight", "file": [2, 6], "model": [5, 6]},
        {"name": "head.bias", "file": [2], "model": [5]},
    ]
    assert torch.equal(more.state_dict["body.blocks.0.weight"], weights["blocks.0.weight"])


def test_a_previous_model_goes_before_the_file(separable: Table) -> None:
    before = trained(separable, spec_of(model=MODEL))
    given_before = PreviousModel(before.state_dict, before.architecture)
    later = trained(separable, tuned(), previous=given_before)
    assert "pretrained" not in later.record()
    assert torch.equal(later.state_dict["body.head.weight"], before.state_dict["body.head.weight"])


def test_weights_of_another_architecture_are_refused(separable: Table) -> None:
    complaint = (
        r"pipeline p: training.pretrained.weights: .*another architecture: none fits; the file has 0.weight, the model blocks"
    )
    with pytest.raises(ConfigError, match=complaint):
        trained(separable, tuned(), initial={"0.weight": torch.ones(2, 2)})


def test_models_without_pretrained_weights_record_nothing_of_them(separable: Table) -> None:
    assert "pretrained" not in trained(separable, spec_of()).record()


def test_names_of_a_file_are_renamed_by_their_beginnings(tmp_path: Path) -> None:
    save_file({"module.fc.weight": torch.ones(1), "body.stem.bias": torch.zeros(2)}, tmp_path / FILE)
    read = read_pretrained(tuned(rename={"module.fc": "head", "": "net."}), tmp_path, source="pipeline p")
    assert read is not None
    assert sorted(read) == ["head.weight", "net.body.stem.bias"]


@pytest.mark.parametrize("name", ["model.pt", "model.bin", "model.pth", "model.ckpt", "model"])
def test_files_that_may_hold_a_pickle_are_refused_by_their_names(name: str) -> None:
    with pytest.raises(ValidationError, match=r"must end in .safetensors: .* may hold a pickle"):
        tuned(weights=name)


def test_a_pickle_under_another_name_is_refused(tmp_path: Path) -> None:
    torch.save({"stem.weight": torch.ones(2)}, tmp_path / FILE)
    with pytest.raises(ConfigError, match=r"training.pretrained.weights: .*weights.safetensors is a pickle"):
        read_pretrained(tuned(), tmp_path, source="pipeline p")


def test_a_file_that_is_missing_outside_or_damaged_is_named(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    for path, complaint in (("nowhere.safetensors", "there is no file"), ("../w.safetensors", "below the project's folder")):
        with pytest.raises(ConfigError, match=f"pipeline p: training.pretrained.weights: .*{complaint}.*{path}"):
            read_pretrained(tuned(weights=path), tmp_path / "project", source="pipeline p")
    (tmp_path / FILE).write_bytes(b"\x00" * 40)
    with pytest.raises(ConfigError, match=r"weights.safetensors cannot be read"):
        read_pretrained(tuned(), tmp_path, source="pipeline p")


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"initial_weights": "a.safetensors"}, "two beginnings"),
        ({"model": {"name": "sklearn", "estimator": "sklearn.linear_model:LogisticRegression"}}, "has no layers"),
        ({"pretrained": {"rename": {"a": "b"}}}, "belongs to `weights`"),
        ({"pretrained": {"freeze": ["a"], "lora": {"targets": ["*"]}}}, "leave `freeze` out"),
        ({"pretrained": {"freeze": ["a"]}, "ranks": 2, "strategy": "fsdp", "batch_size": 8}, "strategy: replicated"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        spec_of(**{"pretrained": {"weights": FILE}} | fields)


NAMES: Final = st.sampled_from(["a", "b", "c"])
SHAPES: Final = st.dictionaries(NAMES, st.sampled_from([(1,), (2,), (1, 2)]))


@given(file=SHAPES, model=SHAPES.filter(bool))
def test_every_tensor_is_loaded_or_in_the_report_exactly_once(
    file: dict[str, tuple[int, ...]], model: dict[str, tuple[int, ...]]
) -> None:
    module = nn.Module()
    for name, shape in model.items():
        module.register_parameter(name, nn.Parameter(torch.zeros(shape)))
    weights = {name: torch.ones(shape) for name, shape in file.items()}
    report = load_partially(module, weights)
    assert report == compare_shapes(shapes_of(weights), model)
    loaded = {name for name, tensor in module.state_dict().items() if np.all(tensor.numpy() == 1)}
    reinitialised = {name for name, _, _ in report.reinitialised}
    assert loaded == {name for name, shape in model.items() if file.get(name) == shape}
    assert (report.n_loaded, loaded | reinitialised | set(report.missing)) == (len(loaded), set(model))
    assert loaded | reinitialised | set(report.unexpected) == file.keys()
