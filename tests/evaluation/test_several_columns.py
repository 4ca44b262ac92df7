"""Metrics of several targets and of several labels against scikit-learn, their losses, and their prediction files."""

import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import sklearn.metrics as sk
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation import Predictions, check_metrics, score
from modyn_dagster.evaluation.metrics.confidence import score_resamples
from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples
from modyn_dagster.evaluation.metrics.losses import sample_losses
from modyn_dagster.evaluation.metrics.registry import METRICS
from modyn_dagster.evaluation.predictions.files import read_predictions, write_predictions
from modyn_dagster.keys import keys_of
from modyn_dagster.spec.tasks.metrics import lower_is_better
from modyn_dagster.spec.tasks.task import MultiLabelTask, MultiOutputTask
from modyn_dagster.training.models.losses import LOSSES
from tests.examples import examples

Outputs = npt.NDArray[np.float32]
Truth = npt.NDArray[np.float64]
Case = tuple[Outputs, Truth]

LABELS = ["subset_accuracy", "hamming_loss", "label_f1_micro", "label_f1_macro"]
NUMBERS = st.integers(-40, 40).map(lambda i: np.float32(i / 8))
OUTPUTS_TASK = MultiOutputTask(kind="multi_output", columns=["a", "b"])
LABELS_TASK = MultiLabelTask(kind="multi_label", columns=["a", "b"])


@st.composite
def targets(draw: st.DrawFn) -> Case:
    shape = draw(st.integers(2, 30)), draw(st.integers(2, 4))
    return draw(hnp.arrays(np.float32, shape, elements=NUMBERS)), draw(hnp.arrays(np.float64, shape, elements=NUMBERS))


@st.composite
def labels(draw: st.DrawFn) -> Case:
    shape = draw(st.integers(1, 30)), draw(st.integers(2, 4))
    outputs = draw(hnp.arrays(np.float32, shape, elements=NUMBERS))
    return outputs, draw(hnp.arrays(np.float64, shape, elements=st.sampled_from([0.0, 1.0])))


@settings(max_examples=examples(40))
@given(targets())
def test_metrics_of_several_targets_agree_with_scikit_learn_together_and_one_by_one(case: Case) -> None:
    outputs, truth = case
    one = truth.shape[1] - 1
    assert score("mae", outputs, truth).value == pytest.approx(sk.mean_absolute_error(truth, outputs))
    assert score("mse", outputs, truth).value == pytest.approx(sk.mean_squared_error(truth, outputs))
    assert score(f"mae_output_{one}", outputs, truth).value == pytest.approx(
        sk.mean_absolute_error(truth[:, one], outputs[:, one])
    )
    found = score("r2", outputs, truth)
    if any(len(np.unique(column)) == 1 for column in truth.T):
        assert found.value is None
        assert "all targets are" in str(found.reason)
    else:
        assert found.value == pytest.approx(sk.r2_score(truth, outputs))
        assert score(f"r2_output_{one}", outputs, truth).value == pytest.approx(sk.r2_score(truth[:, one], outputs[:, one]))


@settings(max_examples=examples(40))
@given(labels())
def test_metrics_of_several_labels_agree_with_scikit_learn(case: Case) -> None:
    outputs, truth = case
    predicted = (outputs > 0).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = {
            "subset_accuracy": sk.accuracy_score(truth, predicted),
            "hamming_loss": sk.hamming_loss(truth, predicted),
            "label_f1_micro": sk.f1_score(truth, predicted, average="micro"),
            "label_f1_macro": sk.f1_score(truth, predicted, average="macro"),
        }
    assert {name: score(name, outputs, truth).value for name in LABELS} == pytest.approx(expected)


@settings(max_examples=examples(20))
@given(labels(), st.sampled_from([*LABELS, "mae", "mse", "r2"]))
def test_resamples_have_the_scores_of_their_samples(case: Case, metric: str) -> None:
    outputs, truth = case
    rows = np.random.default_rng(0).integers(0, len(truth), (3, len(truth)))
    found = score_resamples(METRICS[metric], EvaluationSamples(outputs, truth), rows)
    expected = [score(metric, outputs[drawn], truth[drawn]).value for drawn in rows]
    np.testing.assert_allclose(found, [np.nan if each is None else each for each in expected], atol=1e-12)


@settings(max_examples=examples(20))
@given(labels())
def test_losses_of_training_are_those_of_predictions(case: Case) -> None:
    outputs, truth = case
    for loss, task in ((LOSSES["mse"], OUTPUTS_TASK), (LOSSES["binary_cross_entropy"], LABELS_TASK)):
        losses = loss(torch.from_numpy(outputs), torch.from_numpy(truth.astype(np.float32)))
        np.testing.assert_allclose(sample_losses(outputs, truth, "target", task), losses, atol=1e-5)
    probabilities = 1 / (1 + np.exp(-outputs.astype(np.float64)))
    chosen = np.where(truth == 1, probabilities, 1 - probabilities)
    np.testing.assert_allclose(sample_losses(outputs, truth, "target", LABELS_TASK), -np.log(chosen).mean(axis=1), rtol=1e-4)


def test_a_missing_value_of_one_column_has_no_loss_and_fails_its_cell() -> None:
    outputs, truth = np.zeros((3, 2), np.float32), np.array([[1.0, 2.0], [np.nan, 1.0], [0.0, 0.0]])
    assert np.isnan(sample_losses(outputs, truth, "target", OUTPUTS_TASK)).tolist() == [False, True, False]
    assert score("mae", outputs, truth).reason == "failed: a target is NaN"
    assert score("mae_output_2", outputs[:1], truth[:1]).reason == "failed: there is no target 2: they are 0 to 1"


@settings(max_examples=examples(15))
@given(case=targets(), missing=st.booleans())
def test_predictions_of_several_columns_come_back_as_they_were_written(case: Case, missing: bool, tmp_path_factory) -> None:
    outputs, truth = case
    if missing:
        truth[0, 1] = np.nan
    n = len(truth)
    times = np.arange(n).astype("datetime64[us]")
    written = Predictions(
        "target", keys_of(0, np.arange(n)), times, truth, outputs, sample_losses(outputs, truth, "target", OUTPUTS_TASK)
    )
    path: Path = tmp_path_factory.mktemp("several") / "predictions.arrow"
    row = write_predictions(path, [written], kind="target", n_outputs=outputs.shape[1], n_targets=truth.shape[1])
    found = read_predictions(path, row.checksum)
    assert found.kind == "target"
    for name in ("keys", "times", "truth", "outputs", "losses"):
        np.testing.assert_array_equal(getattr(found, name), getattr(written, name))


def test_metrics_are_for_their_tasks() -> None:
    check_metrics(["mae", "mse_output_1", "r2"], "multi_output", source="pipeline p")
    check_metrics(LABELS, "multi_label", source="pipeline p")
    with pytest.raises(ConfigError, match=r"the task is multi_label: use subset_accuracy, hamming_loss"):
        check_metrics(["accuracy"], "multi_label", source="pipeline p")
    assert [lower_is_better(name) for name in LABELS] == [False, True, False, False]
