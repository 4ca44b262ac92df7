"""Functions of torchmetrics are metrics by their import path."""

import importlib
from importlib.metadata import version
from types import ModuleType
from typing import Final

import numpy as np
import pytest
import torch

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation import bootstrap, check_metrics, score
from modyn_dagster.evaluation.metrics.registry import metric_code

BINARY = ("binary_matthews_corrcoef", "binary_specificity", "binary_cohen_kappa", "binary_auroc")
MULTICLASS = ("multiclass_accuracy", "multiclass_matthews_corrcoef", "multiclass_auroc", "multiclass_jaccard_index")
TARGETS = ("mean_absolute_percentage_error", "pearson_corrcoef", "explained_variance")


FUNCTIONS: Final = "torchmetrics.functional"


def path(name: str, module: str = "classification") -> str:
    return f"{FUNCTIONS}.{module}:{name}"


@pytest.fixture
def classification() -> ModuleType:
    """Imported by the tests that use it: it takes seconds."""
    return importlib.import_module(f"{FUNCTIONS}.classification")


@pytest.fixture
def regression() -> ModuleType:
    return importlib.import_module(f"{FUNCTIONS}.regression")


@pytest.mark.parametrize("name", BINARY)
def test_two_classes_are_judged_by_the_probability_of_class_1(name: str, classification: ModuleType) -> None:
    rng = np.random.default_rng(1)
    outputs, truth = rng.normal(size=(40, 2)).astype(np.float32), rng.integers(0, 2, 40)
    shares = torch.from_numpy(outputs).double().softmax(1)[:, 1]
    assert score(path(name), outputs, truth).value == float(getattr(classification, name)(shares, torch.from_numpy(truth)))


@pytest.mark.parametrize("name", MULTICLASS)
def test_more_classes_are_judged_by_the_outputs(name: str, classification: ModuleType) -> None:
    rng = np.random.default_rng(1)
    outputs, truth = rng.normal(size=(40, 4)).astype(np.float32), rng.integers(-1, 4, 40)
    labelled = truth >= 0
    given = torch.from_numpy(outputs[labelled]), torch.from_numpy(truth[labelled])
    found = score(path(name), outputs, truth)
    assert (found.value, found.n_unlabelled) == (float(getattr(classification, name)(*given, 4)), int((~labelled).sum()))


@pytest.mark.parametrize("name", TARGETS)
def test_targets_are_judged_by_the_regression_value(name: str, regression: ModuleType) -> None:
    rng = np.random.default_rng(1)
    outputs, truth = rng.normal(size=(40, 1)).astype(np.float32), rng.normal(size=40)
    expected = getattr(regression, name)(torch.from_numpy(outputs[:, 0]).double(), torch.from_numpy(truth))
    assert score(path(name, "regression"), outputs, truth).value == pytest.approx(float(expected), rel=1e-12)


def test_what_it_cannot_judge_fails_the_cell_with_the_reason() -> None:
    outputs, truth = np.ones((4, 3), np.float32), np.array([0, 1, 2, 2])
    assert score(path("binary_auroc"), outputs, truth).reason == "failed: binary_auroc is for two classes, the model knows 3"
    unknown = "failed: a sample is of class 5, the model knows 3 classes"
    assert score(path("multiclass_auroc"), outputs, truth + 3).reason == unknown
    assert str(score(path("multiclass_confusion_matrix"), outputs, truth).reason).startswith("failed: ")


def test_not_a_number_is_undefined_and_what_it_warns_of_too(monkeypatch: pytest.MonkeyPatch, regression: ModuleType) -> None:
    monkeypatch.setattr(regression, "nothing", lambda preds, target: torch.tensor(torch.nan), raising=False)
    found = score(path("nothing", "regression"), np.ones((5, 1), np.float32), np.arange(5.0))
    assert (found.value, found.reason) == (None, "nothing gives nan")
    one_class = score(path("binary_auroc"), np.ones((5, 2), np.float32), np.zeros(5, np.int64))
    assert (one_class.value, one_class.failed) == (None, False)
    assert "No positive samples" in str(one_class.undefined)


def test_it_is_for_one_kind_of_label_and_has_the_bootstraps_interval() -> None:
    check_metrics([path("binary_auroc")], "class", source="p")
    with pytest.raises(ConfigError, match="label is a target"):
        check_metrics([path("binary_auroc")], "target", source="p")
    rng = np.random.default_rng(1)
    outputs, truth = rng.normal(size=(40, 2)).astype(np.float32), rng.integers(0, 2, 40)
    found = bootstrap(path("binary_specificity"), outputs, truth, resamples=40)
    assert found is not None
    assert found.low < float(score(path("binary_specificity"), outputs, truth).value or 0) < found.high


def test_its_version_is_part_of_a_cells_address() -> None:
    assert metric_code(path("binary_auroc")) == version("torchmetrics")
