"""Transforms change what a model sees: in training, in evaluation, or in both; whoever fails is named."""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from modyn_dagster.errors import BadSample, ConfigError, ImportPathError, TrainingError, WrongShape
from modyn_dagster.training import FastPath, check_user_code
from modyn_dagster.training.data import COLUMNS, EMBEDDING
from modyn_dagster.training.module import build_module
from tests.training.table import Table, spec_of
from tests.training.trained import CLASSES, assert_same_bits, trained
from tests.training.transforming import CODE, function, mark, numbers, pictures, predictor, spec


@pytest.fixture(autouse=True)
def seen(user_code: str) -> list[tuple[str, int]]:
    """Marks of the variants that were called, and with how many samples."""
    found: list[tuple[str, int]] = importlib.import_module(CODE).SEEN
    found.clear()
    return found


@pytest.mark.parametrize("per", ["sample", "batch"])
@pytest.mark.parametrize("draws", [True, False])
@pytest.mark.parametrize("name", ["times", "in_place"])
def test_training_on_transformed_inputs_is_training_on_other_data(name: str, draws: bool, per: str) -> None:
    """Doubling is exact, so the twin that reads doubled columns has the same bits; also where a transform works in place."""
    twin = trained(numbers(factor=2), spec())
    for way in (FastPath(), FastPath(prefetch=0), FastPath(cache_bytes=0)):
        found = trained(numbers(), spec(function(name, per=per, draws=draws)), fast_path=way)
        assert_same_bits(found.state_dict, twin.state_dict)
        assert (predictor(found)(numbers().samples) == predictor(twin)(numbers(factor=2).samples)).all()


def test_they_come_after_standardisation_and_in_their_order() -> None:
    model = trained(numbers(), spec(function("times", config={"factor": 3.0}), function("in_place"), standardize=True))
    shown = predictor(model).tapped(numbers().samples, [COLUMNS, EMBEDDING])
    columns = np.column_stack([numbers().columns["x"], numbers().columns["y"]])
    expected = (columns - columns.mean(axis=0)) / columns.std(axis=0) * 6
    np.testing.assert_allclose(shown[COLUMNS], expected, rtol=1e-4)
    np.testing.assert_array_equal(shown[EMBEDDING], shown[COLUMNS])


def test_training_and_evaluation_have_variants_of_their_own() -> None:
    plain, samples = trained(numbers(), spec()), numbers().samples
    double = function("times")
    evaluated = trained(numbers(), spec(double | {"when": "evaluate"}))
    assert_same_bits(evaluated.state_dict, plain.state_dict)
    assert (predictor(evaluated)(samples) == predictor(plain)(numbers(factor=2).samples)).all()
    augmented = trained(numbers(), spec(double | {"when": "train"}))
    assert_same_bits(augmented.state_dict, trained(numbers(factor=2), spec()).state_dict)
    assert (predictor(augmented)(samples) != predictor(augmented)(numbers(factor=2).samples)).any()


VARIANTS = (mark("train", when="train"), mark("evaluate", when="evaluate"))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"train"}),
        ({"downsampling": {"policy": "loss", "mode": "batch_then_sample"}}, {"train"}),
        ({"downsampling": {"policy": "loss", "mode": "sample_then_batch"}}, {"train", "evaluate"}),
        ({"downsampling": {"policy": "glister", "holdout": {"kind": "simple", "share": 0.2}}}, {"train", "evaluate"}),
    ],
)
def test_what_is_scored_before_the_epoch_or_set_aside_is_evaluated(
    fields: dict[str, Any], expected: set[str], seen: list[tuple[str, int]]
) -> None:
    """Both variants are tried once to begin with, on all that is trained on: 60, or 48."""
    trained(numbers(), spec(*VARIANTS, epochs=1, **fields))
    assert {mark for mark, n in seen if n not in (48, 60)} == expected


def test_early_stopping_watches_the_evaluation_variant() -> None:
    watched = spec(function("times", when="evaluate"), early_stopping={"patience": 5, "restore_best": False})
    plain = spec(early_stopping={"patience": 5, "restore_best": False})
    found = trained(numbers(), watched, calibrate=numbers(30).data())
    twin = trained(numbers(), plain, calibrate=numbers(30, factor=2).data())
    assert_same_bits(found.state_dict, twin.state_dict)
    assert found.calibration_losses == twin.calibration_losses


@pytest.mark.parametrize("model", [{"name": "cnn", "channels": [2, 2, 2], "hidden": 4}, {"factory": f"{CODE}:seen"}])
def test_a_model_is_built_for_what_it_will_see(model: dict[str, Any]) -> None:
    """A crop of 8 x 8 out of 10 x 10 pixels."""
    table = pictures()
    found = trained(table, spec(function("crop"), parser=f"{CODE}:planes", model=model))
    assert found.architecture["features"]["shape"] == [1, 10, 10]
    assert found.architecture["seen"]["shape"] == [1, 8, 8]
    assert predictor(found)(table.samples).shape == (40, 2)
    with pytest.raises(ConfigError, match=r"training\.transforms.*apply them yourself"):
        build_module(found.architecture)


def test_a_transform_of_training_alone_does_not_keep_a_model_from_being_exported() -> None:
    found = trained(numbers(), spec(function("times", when="train")))
    module = build_module(found.architecture)
    module.load_state_dict(found.state_dict)
    columns = np.column_stack([numbers().columns["x"], numbers().columns["y"]])
    shown = module.eval()({"features": torch.from_numpy(columns)}).detach().numpy()
    np.testing.assert_allclose(shown, predictor(found)(numbers().samples), rtol=1e-5)


def test_one_of_several_inputs_is_named() -> None:
    rng = np.random.default_rng(3)
    table = Table({"x": rng.normal(size=40), "kind": rng.integers(0, 4, 40)}, labels=rng.integers(0, 2, 40))
    groups = {"numeric": {"columns": ["x"]}, "categorical": {"columns": ["kind"], "dtype": "int64"}}
    fields: dict[str, Any] = {"features": groups, "model": {"factory": "training_user_code:recommender"}}
    doubled = spec(function("times", input="numeric"), **fields)
    twin = Table({**table.columns, "x": table.columns["x"].astype(np.float32).astype(np.float64) * 2}, labels=table.labels)
    assert_same_bits(trained(table, doubled).state_dict, trained(twin, spec(**fields)).state_dict)
    with pytest.raises(ValidationError, match="each needs an `input` of the model: numeric, categorical"):
        spec(function("times"), **fields)
    with pytest.raises(ValidationError, match="'shop' is no input of the model: numeric, categorical"):
        spec(function("times", input="shop"), **fields)


KEY = int(numbers().keys[17])


def with_a_large_one() -> Table:
    table = numbers()
    table.columns["x"][17] = 60
    return table


@pytest.mark.parametrize(
    ("transform", "error", "rule"),
    [
        (
            function("fails_on_large"),
            BadSample,
            rf"p: training.transforms.0: .*fails_on_large failed on the sample with key {KEY}",
        ),
        (function("fails_on_large", per="batch"), BadSample, f"failed on the sample with key {KEY}: ValueError: too large"),
        (function("one_alone", per="batch"), TrainingError, "one at a time, please.*together, with none of them alone"),
        (function("ragged"), WrongShape, "for the sample with key"),
        (function("one_too_few", per="batch"), WrongShape, r"one_too_few returned shape \(\d+, 2\)"),
        (function("a_text"), ConfigError, "must return a tensor, not str"),
        (function("draws_in_vain", draws=False), ConfigError, "draws from the generators of the process"),
        (function("times", config={"by": 3}), BadSample, "unexpected keyword argument 'by'"),
        ({"factory": f"{CODE}:not_callable"}, ConfigError, "must return a callable"),
        ({"factory": f"{CODE}:marked"}, ConfigError, "refused it: TypeError"),
    ],
)
def test_failures_name_field_transform_and_sample(transform: dict[str, Any], error: type[Exception], rule: str) -> None:
    with pytest.raises(error, match=rule):
        trained(with_a_large_one(), spec(transform))


def test_a_predictor_names_the_sample_too() -> None:
    model = trained(numbers(), spec(function("fails_on_large", when="evaluate")))
    with pytest.raises(BadSample, match=f"training.transforms.0: .* the sample with key {KEY}"):
        predictor(model)(with_a_large_one().samples)


def test_code_that_is_not_there_is_found_out_before() -> None:
    with pytest.raises(ImportPathError, match=r"training\.transforms\.1\.function"):
        check_user_code(spec(function("times"), function("nowhere")), source="p")


@pytest.mark.parametrize("content", [{}, {"function": f"{CODE}:times", "factory": f"{CODE}:noise"}])
def test_a_transform_is_a_function_or_a_factory(content: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="give either `function` or `factory`"):
        spec(content)


def test_without_transforms_a_spec_has_no_trace_of_them() -> None:
    content: Sequence[str] = list(spec_of().model_dump(mode="json"))
    assert "transforms" not in content
    assert "label_transform" not in content
    assert "seen" not in trained(numbers(), spec_of(), task=CLASSES).architecture


def test_floats_become_those_of_the_model_and_whole_numbers_stay() -> None:
    model = trained(numbers(), spec(function("jitter", config={"scale": 0.0})))
    assert_same_bits(model.state_dict, trained(numbers(), spec()).state_dict)
    assert all(tensor.dtype == torch.float32 for tensor in model.state_dict.values())
