"""Start of a training: the previous model, its standardisation, its outputs."""

import numpy as np
import pytest
import torch

from modyn_dagster.errors import ConfigError, TrainingError
from modyn_dagster.training import (
    PreviousModel,
    Task,
    build_predictor,
)
from tests.training.table import MakeTable, Table, spec_of
from tests.training.trained import assert_same_bits, trained


def test_the_previous_model_is_where_training_starts(separable: Table) -> None:
    before = trained(separable, spec_of(epochs=3))
    still = spec_of(optimizer={"name": "sgd", "lr": 1e-30})
    after = trained(separable, still, previous=PreviousModel(before.state_dict, before.architecture))
    assert_same_bits(before.state_dict, after.state_dict)


def test_standardisation_is_fitted_again_to_the_new_training_set(separable: Table, table: MakeTable) -> None:
    before = trained(separable, spec_of())
    moved = table({"left": separable.columns["left"] + 9, "right": separable.columns["right"]}, labels=separable.labels)
    after = trained(moved, spec_of(), previous=PreviousModel(before.state_dict, before.architecture))
    shift = after.state_dict["standardize.mean"] - before.state_dict["standardize.mean"]
    torch.testing.assert_close(shift, torch.tensor([9.0, 0.0], dtype=torch.float64))


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        ({"features": ["left"]}, "saw other features"),
        ({"model": {"name": "mlp"}}, "has other weights"),
    ],
)
def test_a_previous_model_that_does_not_fit_is_refused(separable: Table, other: dict[str, object], complaint: str) -> None:
    before = trained(separable, spec_of(**other))
    with pytest.raises(ConfigError, match=f"pipeline p: training.use_previous_model: the previous model {complaint}"):
        trained(separable, spec_of(), previous=PreviousModel(before.state_dict, before.architecture))


def test_a_class_that_the_previous_model_did_not_know_is_an_error_that_says_how_to_pin_classes(
    separable: Table, table: MakeTable
) -> None:
    before = trained(separable, spec_of())
    more = table({**separable.columns}, labels=np.arange(300) % 3)
    with pytest.raises(ConfigError, match="has 2 outputs, this training set needs 3; pin `classes` or `n_classes`"):
        trained(more, spec_of(), previous=PreviousModel(before.state_dict, before.architecture))


def test_a_class_that_is_absent_this_time_keeps_its_output(separable: Table, table: MakeTable) -> None:
    three = table({**separable.columns}, labels=np.arange(300) % 3)
    before = trained(three, spec_of())
    after = trained(separable, spec_of(), previous=PreviousModel(before.state_dict, before.architecture))
    assert after.architecture["n_outputs"] == 3


@pytest.mark.parametrize(
    ("n_classes", "labels", "expected"), [(None, [0, 0], 2), (None, [0, 4], 5), (7, [0, 1], 7), (1, [0, 0], 2)]
)
def test_outputs_follow_the_classes(table: MakeTable, n_classes: int | None, labels: list[int], expected: int) -> None:
    found = trained(table({"left": np.arange(2.0)}, labels=np.array(labels)), spec_of(), task=Task("class", n_classes))
    assert found.architecture["n_outputs"] == expected


def test_a_class_beyond_the_pinned_ones_is_refused_with_its_key(table: MakeTable) -> None:
    rows = table({"left": np.arange(3.0)}, labels=np.array([0, 1, 2]))
    with pytest.raises(TrainingError, match=rf"key {rows.keys[2]} has class 2, the dataset allows classes 0 to 1"):
        trained(rows, spec_of(), task=Task("class", 2))


def test_standardisation_is_stored_in_the_model(separable: Table) -> None:
    state = trained(separable, spec_of()).state_dict
    columns = np.column_stack([separable.columns["left"], separable.columns["right"]])
    np.testing.assert_allclose(state["standardize.mean"].numpy(), columns.mean(0), rtol=1e-12)
    np.testing.assert_allclose(state["standardize.factor"].numpy(), 1 / columns.std(0), rtol=1e-12)


def test_without_standardisation_the_model_sees_the_columns_as_they_are(separable: Table, user_code: str) -> None:
    spec = spec_of(
        standardize=False, model={"factory": f"{user_code}:identity"}, optimizer={"lr": 1e-30}, features=["left", "right"]
    )
    found = trained(separable, spec)
    assert list(found.state_dict) == ["body.shift"]
    predict = build_predictor(found.architecture, found.state_dict, threads=1, source="p")
    left = separable.columns["left"].astype(np.float32)
    np.testing.assert_allclose(predict(separable.samples)[:, 0], left, rtol=1e-6)
