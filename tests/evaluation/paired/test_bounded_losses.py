"""Bounded losses: means of them are the metrics, where nothing is clipped."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation import score
from modyn_dagster.evaluation.paired.bounded_losses import (
    bounded_losses,
    loss_unit,
    paired_differences,
)
from modyn_dagster.spec.tasks.metrics import has_sample_losses

CLASSES = ["accuracy", "accuracy_top2", "log_loss", "brier", "rank_mae", "ranked_probability"]


def made_up(seed: int, n_classes: int, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, n_classes)).astype(np.float32), rng.integers(0, n_classes, n)


@pytest.mark.parametrize("metric", CLASSES)
@given(seed=st.integers(0, 2**32 - 1), n_classes=st.integers(2, 4))
def test_the_mean_of_unclipped_losses_is_the_metric(metric, seed, n_classes):
    outputs, truth = made_up(seed, n_classes)
    unit = 100.0 if metric == "log_loss" else loss_unit(metric, None, n_classes)
    mean = unit * bounded_losses(metric, outputs, truth, unit).mean()
    value = score(metric, outputs, truth).value
    assert value is not None
    assert mean == pytest.approx(1 - value if metric.startswith("accuracy") else value, abs=1e-9)


@pytest.mark.parametrize("metric", ["mse", "mae"])
@given(seed=st.integers(0, 2**32 - 1))
def test_the_mean_of_unclipped_errors_is_the_metric_of_a_regression(metric, seed):
    outputs, _ = made_up(seed, 1)
    truth = np.random.default_rng(seed).normal(size=len(outputs))
    assert 1e3 * bounded_losses(metric, outputs, truth, 1e3).mean() == pytest.approx(score(metric, outputs, truth).value)


@pytest.mark.parametrize("metric", CLASSES)
@given(seed=st.integers(0, 2**32 - 1), n_classes=st.integers(2, 4), bad=st.sampled_from([np.nan, np.inf, -np.inf]))
def test_losses_lie_in_their_bounds_and_the_worst_is_that_of_outputs_that_are_not_finite_or_a_class_unknown(
    metric, seed, n_classes, bad
):
    outputs, truth = made_up(seed, n_classes)
    outputs *= 50
    outputs[0, 0], truth[1] = bad, n_classes
    losses = bounded_losses(metric, outputs, truth, loss_unit(metric, None, n_classes))
    assert ((losses >= 0) & (losses <= 1)).all()
    assert losses[:2].tolist() == [1, 1]


@pytest.mark.parametrize("metric", CLASSES)
@given(seed=st.integers(0, 2**32 - 1))
def test_exchanging_the_models_changes_the_signs(metric, seed):
    (one, truth), (other, _) = made_up(seed, 3), made_up(seed + 1, 3)
    forth, back = paired_differences(metric, one, other, truth), paired_differences(metric, other, one, truth)
    assert forth.values.tolist() == (-back.values).tolist()
    assert (np.abs(forth.values) <= 1).all()


def test_a_log_loss_is_clipped_at_its_bound():
    outputs = np.array([[0, 10], [0, 0]], np.float32)
    assert bounded_losses("log_loss", outputs, np.array([0, 0]), 5.0).tolist() == [1.0, pytest.approx(np.log(2) / 5)]


def test_a_model_that_knows_fewer_classes_is_compared_too():
    truth = np.array([2, 0])
    pair = paired_differences("accuracy", np.eye(3, dtype=np.float32)[truth], np.array([[1, 0], [1, 0]], np.float32), truth)
    assert pair.values.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("metric", "bound", "complaint"),
    [
        ("mse", None, "give the largest loss"),
        ("accuracy", 2.0, "have a bound of their own"),
        ("log_loss", -1.0, "positive number"),
        ("mae", float("nan"), "positive number"),
        ("roc_auc", None, "block_bootstrap"),
        ("accuracy_class_1", None, "block_bootstrap"),
    ],
)
def test_a_loss_needs_a_bound_where_it_has_none_and_takes_no_other(metric, bound, complaint):
    with pytest.raises(ConfigError, match=complaint):
        loss_unit(metric, bound, 2)


def test_metrics_of_another_task_are_refused():
    outputs, truth = made_up(0, 2)
    with pytest.raises(ConfigError, match="the samples have a class: use accuracy, log_loss, brier"):
        paired_differences("mse", outputs, outputs, truth, bound=1.0)
    with pytest.raises(ConfigError, match="the samples have a target: use mse, mae"):
        paired_differences("accuracy", outputs, outputs, truth.astype(np.float64))
    with pytest.raises(ConfigError, match="finite target"):
        paired_differences("mse", outputs, outputs, np.full(len(truth), np.nan), bound=1.0)
    assert not has_sample_losses("f1_macro")
