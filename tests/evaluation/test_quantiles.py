"""Metrics of quantiles against scikit-learn and brute force, the loss that they go with, and the order of quantiles."""

import numpy as np
import numpy.typing as npt
import pytest
import sklearn.metrics as sk
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pydantic import ValidationError

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation import check_metrics, confidence_interval, score
from modyn_dagster.evaluation.metrics.losses import pinball_losses, sample_losses
from modyn_dagster.evaluation.metrics.registry import find_metric
from modyn_dagster.evaluation.paired.bounded_losses import bounded_losses
from modyn_dagster.spec.tasks.metrics import has_sample_losses, lower_is_better
from modyn_dagster.spec.tasks.task import QuantilesTask
from modyn_dagster.training.models.losses import pinball
from tests.examples import examples

Outputs = npt.NDArray[np.float32]
Targets = npt.NDArray[np.float64]
Case = tuple[Outputs, Targets, QuantilesTask]

NUMBERS = st.integers(-40, 40).map(lambda i: np.float32(i / 8))


def quantiles_of(*levels: float) -> QuantilesTask:
    return QuantilesTask(kind="quantiles", quantiles=list(levels))


@st.composite
def forecast(draw: st.DrawFn) -> Case:
    levels = sorted(draw(st.sets(st.integers(1, 999), min_size=1, max_size=4)))
    n = draw(st.integers(1, 30))
    outputs = draw(hnp.arrays(np.float32, (n, len(levels)), elements=NUMBERS))
    return outputs, draw(hnp.arrays(np.float64, n, elements=NUMBERS)), quantiles_of(*(level / 1000 for level in levels))


@settings(max_examples=examples(40))
@given(forecast())
def test_the_pinball_loss_agrees_with_scikit_learn_and_is_the_loss_of_training(case: Case) -> None:
    outputs, truth, task = case
    expected = np.mean([sk.mean_pinball_loss(truth, outputs[:, i], alpha=level) for i, level in enumerate(task.quantiles)])
    assert score(task.pinball, outputs, truth).value == pytest.approx(expected, abs=1e-9)
    losses = pinball(task.quantiles)(torch.from_numpy(outputs), torch.from_numpy(truth))
    np.testing.assert_allclose(losses, pinball_losses(outputs, truth, task.quantiles), atol=1e-6)
    np.testing.assert_array_equal(
        sample_losses(outputs, truth, "target", task), pinball_losses(outputs, truth, task.quantiles).astype("f4")
    )
    assert 50 * bounded_losses(task.pinball, outputs, truth, 50).mean() == pytest.approx(expected, abs=1e-9)


@settings(max_examples=examples(40))
@given(forecast())
def test_the_name_of_the_metric_holds_the_quantiles(case: Case) -> None:
    _, _, task = case
    assert find_metric(task.pinball).parameters == {"levels": tuple(task.quantiles)}
    assert has_sample_losses(task.pinball)
    assert lower_is_better(task.pinball)


@settings(max_examples=examples(40))
@given(forecast())
def test_sorting_the_quantiles_of_a_sample_never_adds_to_its_loss(case: Case) -> None:
    outputs, truth, task = case
    before, after = (pinball_losses(each, truth, task.quantiles) for each in (outputs, np.sort(outputs, axis=1)))
    assert (after <= before + 1e-12).all()


@settings(max_examples=examples(40))
@given(forecast())
def test_coverage_and_width_are_those_of_the_outermost_quantiles(case: Case) -> None:
    outputs, truth, _ = case
    outputs = np.sort(outputs, axis=1)
    inside = [low <= value <= high for low, high, value in zip(outputs[:, 0], outputs[:, -1], truth)]
    covered, width = score("coverage", outputs, truth), score("interval_width", outputs, truth)
    if outputs.shape[1] == 1:
        assert covered.reason == width.reason == "failed: an interval needs two quantiles, and the model has one output"
        return
    assert covered.value == pytest.approx(np.mean(inside))
    assert width.value == pytest.approx((outputs[:, -1].astype(float) - outputs[:, 0]).mean())
    interval = confidence_interval("coverage", outputs, truth)
    assert interval is not None
    assert interval.method == "wilson"


def test_a_metric_of_other_quantiles_than_the_outputs_fails_its_cell() -> None:
    found = score("pinball_q10_q90", np.zeros((3, 3), np.float32), np.zeros(3))
    assert found.reason == "failed: the metric names 2 quantiles, the model has 3 outputs"


@pytest.mark.parametrize(
    ("levels", "rule"),
    [
        ([], "at least 1 item"),
        ([0.5, 0.1], "quantiles must ascend, each once"),
        ([0.5, 0.5], "quantiles must ascend, each once"),
        ([0.0, 0.5], "greater than 0"),
        ([0.5, 1.0], "less than 1"),
        ([0.1234567], "more than 6 decimals"),
    ],
)
def test_quantiles_that_are_none_are_refused(levels: list[float], rule: str) -> None:
    with pytest.raises(ValidationError, match=rule):
        quantiles_of(*levels)


def test_metrics_of_quantiles_are_for_their_task_alone_and_those_of_a_value_are_not() -> None:
    check_metrics(["pinball_q10_q90", "coverage", "interval_width"], "quantiles", source="pipeline p")
    with pytest.raises(ConfigError, match=r"the task is quantiles: use pinball_q10_q90 .*, coverage, interval_width"):
        check_metrics(["mae"], "quantiles", source="pipeline p")
    with pytest.raises(ConfigError, match="the dataset's label is a target: use mae, mse, r2"):
        check_metrics(["coverage"], "target", source="pipeline p")
    with pytest.raises(ConfigError, match="must be one of"):
        find_metric("mae_q10")
