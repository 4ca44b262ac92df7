"""Labels become others before anything is compared with them: in training, and wherever a model is judged."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from modyn_dagster.errors import ConfigError, ImportPathError, TrainingError
from modyn_dagster.keys import keys_of
from modyn_dagster.spec.training import TaskKind, TrainingSpec
from modyn_dagster.training import Task, check_user_code
from modyn_dagster.training.data import check_task
from modyn_dagster.training.transforms.labels import Relabeling, numbered
from tests.examples import examples
from tests.training.table import Table, spec_of
from tests.training.trained import assert_same_bits, trained
from tests.training.transforming import CODE, predictor

pytestmark = pytest.mark.usefixtures("user_code")

GROUPS: dict[str, Any] = {"groups": [[3, 0], [1, 4], [2]]}
GROUP_OF = {3: 0, 0: 0, 1: 1, 4: 1, 2: 2}
OWN = f"{CODE}:modulo"


def spec(transform: dict[str, Any], **fields: Any) -> TrainingSpec:
    return spec_of(**{"label_transform": transform, "epochs": 2, "batch_size": 20} | fields)


def relabeling(transform: dict[str, Any], given: TaskKind = "class") -> Relabeling:
    return Relabeling(spec(transform).label_transform, given, "p")


def classes(labels: npt.NDArray[np.int64], n_classes: int | None = 5) -> tuple[Table, Task]:
    values = np.random.default_rng(1).normal(np.maximum(labels, 0), 1)
    return Table({"x": values}, labels=labels), Task("class", n_classes)


LABELS = np.random.default_rng(0).integers(0, 5, 90)


@pytest.mark.parametrize(
    ("transform", "made", "n_classes"),
    [
        (GROUPS, np.array([GROUP_OF[label] for label in LABELS.tolist()]), 3),
        ({"positive": [4, 1]}, np.isin(LABELS, [1, 4]).astype(np.int64), 2),
        ({"function": OWN, "config": {"by": 4}, "n_classes": 4}, LABELS % 4, 4),
    ],
)
@pytest.mark.parametrize("policy", [None, "rho", "margin"])
def test_training_is_that_on_other_labels(
    transform: dict[str, Any], made: npt.NDArray[np.int64], n_classes: int, policy: str | None
) -> None:
    fields = {} if policy is None else {"downsampling": {"policy": policy, "mode": "batch_then_sample"}}
    table, task = classes(LABELS)
    found = trained(table, spec(transform, **fields), task=task)
    twin = Table(table.columns, labels=made)
    expected = trained(twin, spec_of(epochs=2, batch_size=20, **fields), task=Task("class", n_classes))
    assert_same_bits(found.state_dict, expected.state_dict)
    assert found.architecture["n_outputs"] == n_classes
    judged = predictor(found).judged(table.samples)
    assert judged.labels is not None
    assert judged.labels.tolist() == made.tolist()


def test_targets_become_classes_above_a_threshold() -> None:
    targets = np.array([1.0, 2.5, 2.500001, -4.0, 9.0] * 8)
    table = Table({"x": targets}, targets=targets)
    found = trained(table, spec({"above": 2.5}), task=Task("target"))
    expected = trained(Table({"x": targets}, labels=(targets > 2.5).astype(np.int64)), spec_of(epochs=2, batch_size=20))
    assert_same_bits(found.state_dict, expected.state_dict)
    assert predictor(found).kind == found.architecture["task"] == "class"


def test_classes_become_targets() -> None:
    table, task = classes(LABELS)
    found = trained(table, spec({"function": f"{CODE}:halved"}), task=task)
    expected = trained(Table(table.columns, targets=LABELS / 2), spec_of(epochs=2, batch_size=20), task=Task("target"))
    assert_same_bits(found.state_dict, expected.state_dict)
    judged = predictor(found).judged(table.samples)
    assert judged.labels is None
    np.testing.assert_array_equal(np.asarray(judged.targets), LABELS / 2)


@settings(max_examples=examples(50))
@given(labels=st.lists(st.integers(-1, 8), min_size=1, max_size=30))
def test_judged_labels_are_those_of_their_group_or_nobodys(labels: list[int]) -> None:
    """A missing label stays missing; one in no group is a class beyond those a model knows."""
    table, _ = classes(np.array(labels))
    found = relabeling(GROUPS).judged(table.samples).labels
    assert found is not None
    assert found.tolist() == [GROUP_OF.get(label, 3) if label >= 0 else -1 for label in labels]


def test_a_missing_target_stays_missing() -> None:
    table = Table({"x": np.zeros(3)}, targets=np.array([1.0, np.nan, 3.0]))
    labels = relabeling({"above": 2.0}, "target").judged(table.samples).labels
    assert labels is not None
    assert labels.tolist() == [0, -1, 1]


KEYS = keys_of(3, np.arange(len(LABELS)))
TWO = int(KEYS[int(np.argmax(LABELS == 2))])


@pytest.mark.parametrize(
    ("transform", "rule"),
    [
        ({"groups": [[0, 1], [3, 4]]}, f"label_transform: the sample with key {TWO} has class 2, in no group"),
        ({"function": OWN, "config": {"by": 3}, "n_classes": 2}, f"made 2 of 2, the label of the sample with key {TWO}"),
        ({"function": f"{CODE}:refuses_two", "n_classes": 5}, f"failed on 2, the label of the sample with key {TWO}: KeyError"),
        ({"function": f"{CODE}:a_text"}, "returned <U9"),
        ({"function": f"{CODE}:one_too_few"}, r"expected numbers for 90 labels"),
    ],
)
def test_a_label_that_becomes_nothing_is_named_with_its_key(transform: dict[str, Any], rule: str) -> None:
    table, task = classes(np.where((LABELS == 2) & (KEYS != TWO), 0, LABELS))
    with pytest.raises(TrainingError, match=rule):
        trained(table, spec(transform), task=task)


def test_a_sample_without_a_label_is_an_error_as_ever() -> None:
    table, task = classes(np.where(KEYS == TWO, -1, LABELS))
    with pytest.raises(TrainingError, match=f"the sample with key {TWO} has no label"):
        trained(table, spec(GROUPS), task=task)


@pytest.mark.parametrize(
    ("transform", "kind", "loss", "rule"),
    [
        ({"above": 1.0}, "class", None, "label_transform.above.*is for a target; the dataset's label is a class"),
        (GROUPS, "target", None, "label_transform.groups.*is for a class; the dataset's label is a target"),
        ({"above": 1.0}, "target", "mse", "the label after label_transform is a class: use cross_entropy"),
        ({"function": f"{CODE}:halved"}, "class", "cross_entropy", "the label after label_transform is a target: use mse or l1"),
    ],
)
def test_what_cannot_fit_is_found_out_before(transform: dict[str, Any], kind: TaskKind, loss: str | None, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        check_task(spec(transform, loss=loss), kind, source="p")


def test_code_that_is_not_there_is_found_out_before() -> None:
    with pytest.raises(ImportPathError, match=r"training\.label_transform\.function"):
        check_user_code(spec({"function": f"{CODE}:nowhere"}), source="p")


@pytest.mark.parametrize(
    ("transform", "rule"),
    [
        ({"groups": [[0, 1], [1]]}, "1 must be in one group, once"),
        ({"groups": [[0]]}, "at least 2 items"),
        ({"groups": [[0], []]}, "at least 1 item"),
        ({"positive": []}, "at least 1 item"),
        ({"above": 1, "positive": [1]}, "Extra inputs"),
        ({}, "Field required"),
    ],
)
def test_specs_that_mean_nothing(transform: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValidationError, match=rule):
        spec(transform)


def test_classes_by_name_become_numbers() -> None:
    named = spec({"groups": [["cat", "dog"], ["car", 7]]})
    found = numbered(named, ["car", "dog", "cat"], pinned=False, source="p").label_transform
    assert found is not None
    assert found.model_dump() == {"groups": [[2, 1], [0, 7]]}
    positive = numbered(spec({"positive": ["dog", "cow"]}), ["cat", "dog"], pinned=False, source="p").label_transform
    assert positive is not None
    assert positive.model_dump() == {"positive": [1, "cow"]}, "no sample of it has come yet"
    plain = spec({"above": 1.0})
    assert numbered(plain, ["cat"], pinned=True, source="p") is plain


@pytest.mark.parametrize("name", ["cow", 1])
def test_a_class_that_the_dataset_never_has_is_refused(name: str | int) -> None:
    with pytest.raises(ConfigError, match=f"is no class of the dataset; known: cat, dog .*{name}"):
        numbered(spec({"positive": [name]}), ["cat", "dog"], pinned=True, source="p")


def test_a_name_without_a_number_is_nobodys() -> None:
    table, _ = classes(np.array([0, 1]))
    labels = relabeling({"positive": ["cow", 1]}).judged(table.samples).labels
    assert labels is not None
    assert labels.tolist() == [0, 1]
