"""Training sets and user code that cannot be trained with: errors that say where."""

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from fastpath import TrainingSet
from modyn_dagster.errors import ConfigError, NonFiniteLoss, TrainingError, WrongShape
from modyn_dagster.spec.training import TaskKind
from modyn_dagster.training import (
    Task,
    TrainingData,
    TrainingProgress,
)
from tests.training.table import MakeTable, Table, spec_of
from tests.training.trained import trained


@pytest.mark.parametrize(
    ("task", "truth"),
    [("class", {"labels": np.array([0, -1, 1])}), ("target", {"targets": np.array([0.5, np.nan, 1])})],
)
def test_a_sample_without_a_label_is_refused_with_its_key(
    table: MakeTable, task: TaskKind, truth: dict[str, npt.NDArray[Any]]
) -> None:
    rows = table({"left": np.arange(3.0)}, **truth)
    with pytest.raises(TrainingError, match=f"key {rows.keys[1]} has no label"):
        trained(rows, spec_of(), task=Task(task))


def test_a_dataset_without_labels_cannot_be_learnt(table: MakeTable) -> None:
    with pytest.raises(ConfigError, match="no such label to learn"):
        trained(table({"left": np.arange(3.0)}), spec_of())


@pytest.mark.parametrize(("loss", "task"), [("mse", "class"), ("cross_entropy", "target")])
def test_a_loss_for_another_task_is_refused(separable: Table, loss: str, task: TaskKind) -> None:
    with pytest.raises(ConfigError, match=r"pipeline p: training.loss: the dataset's label is a"):
        trained(separable, spec_of(loss=loss), task=Task(task))


def test_an_empty_training_set_is_refused() -> None:
    with pytest.raises(TrainingError, match="training set is empty"):
        TrainingData(TrainingSet.of(np.empty(0, np.uint64)), Table({}))


@pytest.mark.parametrize("weight", [0.0, -1.0, np.nan, np.inf])
def test_a_weight_that_is_not_positive_is_refused_with_its_key(separable: Table, weight: float) -> None:
    weights = np.ones(300)
    weights[4] = weight
    with pytest.raises(TrainingError, match=f"the weight of key {separable.keys[4]} is"):
        separable.data(weights)


def test_a_model_of_the_wrong_shape_is_refused_naming_both_shapes(table: MakeTable, user_code: str) -> None:
    rows = table({"a": np.arange(8.0), "b": np.arange(8.0), "c": np.arange(8.0)}, labels=np.arange(8) % 2)
    with pytest.raises(
        WrongShape, match=r"pipeline p: training.model: the model returned shape \(8, 3\), expected \(8, 2\)"
    ) as caught:
        trained(rows, spec_of(model={"factory": f"{user_code}:identity"}))
    assert (caught.value.expected, caught.value.found) == ((8, 2), (8, 3))


def test_a_loss_that_is_already_a_mean_is_refused(separable: Table, user_code: str) -> None:
    spec = spec_of(loss={"factory": f"{user_code}:mean_loss"}, batch_size=50)
    with pytest.raises(WrongShape, match=r"pipeline p: training.loss: the loss returned shape \(\), expected \(50\)"):
        trained(separable, spec)


def test_a_model_that_raises_is_an_error_naming_pipeline_and_field(separable: Table, user_code: str) -> None:
    with pytest.raises(TrainingError, match=r"pipeline p: training.model: the model failed: KeyError: 'no such layer'"):
        trained(separable, spec_of(model={"factory": f"{user_code}:failing"}))


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_loss_that_is_not_finite_stops_with_step_and_keys_before_the_optimizer_step(
    value: str, separable: Table, user_code: str
) -> None:
    loss = {"factory": f"{user_code}:poisoned_loss", "config": {"value": value}}
    spec = spec_of(loss=loss, batch_size=10, shuffle=False)
    steps: list[TrainingProgress] = []
    with pytest.raises(NonFiniteLoss, match=f"the loss is {value} at step 3") as caught:
        trained(separable, spec, progress=steps.append)
    assert (caught.value.step, caught.value.keys) == (3, separable.keys[20:30].tolist())
    assert set(caught.value.norms) == {"weights", "the last gradient"}
    assert all(norm > 0 for norm in caught.value.norms.values())
    assert "the norm of weights" in str(caught.value)
    assert len(steps) == 2


def test_weights_that_overflow_in_the_last_step_are_not_a_model(separable: Table) -> None:
    spec = spec_of(batch_size=300, optimizer={"name": "sgd", "lr": 3e37}, standardize=False)
    with pytest.raises(TrainingError, match=r"body\.weight is not finite after step 1"):
        trained(separable, spec)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"model": {"factory": "{}:linear", "config": {"bais": False}}},
            r"training.model.config: .*:linear refused it: TypeError",
        ),
        ({"model": {"factory": "{}:not_a_module"}}, r"training.model.factory: must return a torch.nn.Module, not object"),
        ({"model": {"factory": "{}:frozen"}}, r"training.model: has no parameter that can be trained"),
        ({"loss": {"factory": "{}:linear"}}, r"training.loss.config: .*refused it: TypeError"),
        ({"optimizer": {"factory": "{}:not_an_optimizer"}}, r"training.optimizer.factory: must return a torch.optim.Optimizer"),
    ],
)
def test_user_code_that_builds_nothing_usable_is_refused_naming_the_field(
    separable: Table, user_code: str, fields: dict[str, Any], message: str
) -> None:
    filled = json.loads(json.dumps(fields).replace("{}", user_code))
    with pytest.raises(ConfigError, match=f"pipeline p: {message}"):
        trained(separable, spec_of(**filled))


def test_cuda_on_a_machine_without_is_refused(separable: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"pipeline p: training.device: this machine has no CUDA device"):
        trained(separable, spec_of(device="cuda"))
    with pytest.raises(ConfigError, match=r"pipeline p: training.precision: needs a CUDA device"):
        trained(separable, spec_of(device="auto", precision="16-mixed"))
