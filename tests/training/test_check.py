import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import modyn_dagster.training as training
from modyn_dagster.errors import ConfigError, ImportPathError
from modyn_dagster.training import check_task, check_user_code, import_paths
from tests.training.table import spec_of


def custom(user_code: str, name: str) -> dict[str, str]:
    return {"factory": f"{user_code}:{name}"}


def test_every_import_path_of_a_training_is_listed_with_its_field(user_code: str) -> None:
    spec = spec_of(
        parser="parsing_user_code:images",
        model=custom(user_code, "linear"),
        loss=custom(user_code, "mean_loss"),
        optimizer=custom(user_code, "plain_sgd"),
    )
    assert dict(import_paths(spec)) == {
        "training.parser": "parsing_user_code:images",
        "training.model.factory": f"{user_code}:linear",
        "training.loss.factory": f"{user_code}:mean_loss",
        "training.optimizer.factory": f"{user_code}:plain_sgd",
    }
    check_user_code(spec, source="pipeline p")


def test_the_function_of_a_parser_with_workers_is_listed_too(user_code: str) -> None:
    with_workers = spec_of(parser={"function": "parsing_user_code:one_number", "per": "sample"})
    assert list(import_paths(with_workers)) == [("training.parser.function", "parsing_user_code:one_number")]
    assert list(import_paths(spec_of(parser={"images": {"size": [2, 2]}}))) == []


@pytest.mark.parametrize("field", ["model", "loss", "optimizer"])
def test_user_code_that_is_missing_or_not_callable_is_refused_naming_pipeline_and_field(user_code: str, field: str) -> None:
    for name, why in (("nothing", "cannot be imported"), ("NOT_CALLABLE", "names a int")):
        with pytest.raises(ImportPathError, match=rf"pipeline p: training.{field}.factory: {why}"):
            check_user_code(spec_of(**{field: custom(user_code, name)}), source="pipeline p")


def test_built_in_models_need_no_user_code() -> None:
    check_user_code(spec_of(), source="pipeline p")


def test_a_loss_must_fit_what_is_learnt(user_code: str) -> None:
    check_task(spec_of(loss="l1"), "target", source="p")
    check_task(spec_of(loss=custom(user_code, "mean_loss")), "target", source="p")
    check_task(spec_of(), "class", source="p")
    with pytest.raises(ConfigError, match=r"p: training.loss: the dataset's label is a target: use mse or l1"):
        check_task(spec_of(loss="cross_entropy"), "target", source="p")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"features": ["a", "a"]}, "features must not repeat"),
        ({"features": []}, "at least 1 item"),
        ({"precision": "16-mixed"}, "16-mixed needs device cuda"),
        ({"batch_size": 0}, "greater than 0"),
        ({"optimizer": {"name": "adam", "momentum": 0.9}}, "momentum is a setting of sgd"),
        ({"model": {"name": "resnet"}}, "resnet"),
        ({"model": {"factory": "no_such_module:f"}}, "does not exist on the Python path"),
        ({"epoch": 3}, "Extra inputs"),
        ({"shuffle": "block"}, "blocks"),
        ({"features": {"numeric": {"columns": ["a"]}}}, "groups need dlrm or a model of your own"),
        ({"features": {"a-b": {"columns": ["a"]}}, "model": {"factory": "torch.nn:Identity"}}, "should match pattern"),
        ({"features": {"a": {"columns": ["a", "a"]}}, "model": {"factory": "torch.nn:Identity"}}, "columns must not repeat"),
        ({"parser": {"images": {"size": [2, 2]}}, "features": ["a"]}, "images, sounds and texts are one array"),
        ({"parser": {"images": {"size": [0, 2]}}}, "greater than or equal to 1"),
        ({"parser": {"function": "torch.nn:Identity", "workers": {"kind": "fibers"}}}, "threads"),
    ],
)
def test_impossible_trainings_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spec_of(**fields)


@pytest.mark.process
def test_what_is_exported_is_what_all_lists_and_torch_waits_for_its_first_use() -> None:
    for name in training.__all__:
        assert getattr(training, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        training.nothing  # noqa: B018 - raises
    code = "import sys, modyn_dagster.training; sys.exit('torch' in sys.modules or 'rich' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
