"""Estimates without labels: against enumerations, on simulated calibrated models, and what they must not read."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.evaluation.label_free.estimator import Estimate, Estimator
from modyn_dagster.evaluation.label_free.recalibration import Outputs, Recalibration, log_shares, recalibrated
from modyn_dagster.evaluation.metrics.registry import score
from tests.evaluation.label_free.simulated_models import METRICS, SimulatedModel, coverage, numbers_of


@pytest.mark.soak("laws-results")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_estimates_are_the_means_over_all_labels_that_calibrated_probabilities_allow(n_classes):
    model, rng = SimulatedModel(n_classes), np.random.default_rng(n_classes)
    # Seven samples that no class can miss by much: means over classes are exact where each of them is predicted.
    outputs = np.concatenate([2 * np.eye(n_classes), rng.standard_normal((7 - n_classes, n_classes))]).astype(np.float32)
    known = model.samples(rng, 400, shifted=False)
    shares = recalibrated(log_shares(outputs), Recalibration.fit(*known).parameters)
    means, weights = dict.fromkeys(METRICS, 0.0), dict.fromkeys(METRICS, 0.0)
    for labels in product(range(n_classes), repeat=7):
        probability = float(np.prod(shares[np.arange(7), labels]))
        for metric in METRICS:
            value = score(metric, outputs, np.array(labels)).value
            if value is not None:
                means[metric] += probability * value
                weights[metric] += probability
    estimates = Estimator(*known).estimate(METRICS, outputs, draws=0)
    exact = ["f1", "f1_macro", "log_loss"] + (["roc_auc"] if n_classes == 2 else [])
    for metric in exact:
        assert estimates[metric].value == pytest.approx(means[metric] / weights[metric], abs=1e-9), metric
    if n_classes == 3:
        assert estimates["roc_auc"].value == pytest.approx(means["roc_auc"] / weights["roc_auc"], abs=0.02)


@pytest.mark.parametrize("model", [SimulatedModel(2, 0.5), SimulatedModel(2, shift=1.0), SimulatedModel(4, 1.5, shift=0.5)])
def test_estimates_from_many_samples_are_the_scores_that_labels_give(model):
    rng = np.random.default_rng(0)
    estimator = Estimator(*model.samples(rng, 20_000, shifted=False))
    outputs, labels = model.samples(rng, 20_000, shifted=True)
    for metric, estimate in estimator.estimate(METRICS, outputs, draws=0).items():
        assert estimate.value == pytest.approx(score(metric, outputs, labels).value, abs=0.015), metric


@pytest.mark.soak("laws-results")
def test_most_intervals_hold_the_score_of_the_labels():
    held = coverage(SimulatedModel(2, shift=0.5), 25, calibrate=200, n=80, draws=200)
    assert min(held.values()) >= 0.8, held


@pytest.mark.soak("laws-results")
@pytest.mark.parametrize(
    ("model", "calibrate", "n"),
    [
        (SimulatedModel(2), 500, 300),
        (SimulatedModel(2, 0.6, shift=1.0), 300, 200),
        (SimulatedModel(4, shift=0.5), 500, 200),
    ],
)
def test_in_93_of_100_simulations_the_interval_holds_the_score_of_the_labels(model, calibrate, n):
    held = coverage(model, 1000, calibrate=calibrate, n=n, draws=200)
    assert min(held.values()) >= 0.93, held


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4))
def test_a_metric_is_estimated_alike_alone_and_beside_others_and_labels_that_are_not_known_do_not_count(seed, n_classes):
    rng, model = np.random.default_rng(seed), SimulatedModel(n_classes)
    outputs, truth = model.samples(rng, 60, shifted=False)
    known = rng.random(60) < 0.8
    targets, _ = model.samples(rng, 30, shifted=True)
    estimates = Estimator(outputs, truth, known).estimate(METRICS, targets, draws=25)
    hidden = Estimator(outputs, np.where(known, truth, rng.integers(-1, n_classes, 60)), known)
    assert hidden.estimate(METRICS, targets, draws=25) == estimates
    assert Estimator(outputs, np.where(known, truth, -1)).estimate(METRICS, targets, draws=25) == estimates
    for metric, estimate in estimates.items():
        assert hidden.estimate([metric], targets, draws=25) == {metric: estimate}
        low, value, high = numbers_of(estimate)
        assert low <= value <= high


def width(estimate: Estimate) -> float:
    low, _, high = numbers_of(estimate)
    return high - low


def test_an_interval_gets_narrower_with_more_samples_on_either_side():
    rng, model = np.random.default_rng(1), SimulatedModel(2)
    widths = {}
    for calibrate, n in ((50, 200), (2000, 200), (2000, 5000)):
        estimator = Estimator(*model.samples(rng, calibrate, shifted=False))
        estimates = estimator.estimate(METRICS, model.samples(rng, n, shifted=True)[0], draws=100)
        widths[calibrate, n] = np.array([width(estimate) for estimate in estimates.values()])
    assert (widths[50, 200] > widths[2000, 200]).all()
    assert (widths[2000, 200] > widths[2000, 5000]).all()


def test_there_is_a_reason_where_there_is_no_estimate():
    rng, model = np.random.default_rng(2), SimulatedModel(2)
    outputs, truth = model.samples(rng, 20, shifted=False)
    estimator = Estimator(outputs, truth)

    def reason(estimator: Estimator, outputs: Outputs, min_samples: int = 1) -> str | None:
        estimate = estimator.estimate(["roc_auc"], outputs, min_samples=min_samples)["roc_auc"]
        assert (estimate.value, estimate.low, estimate.high) == (None, None, None)
        return estimate.reason

    assert reason(Estimator(outputs, np.full(20, -1)), outputs) == "no sample to calibrate on has a label"
    assert reason(estimator, outputs[:0]) == "0 samples, at least 1 are needed"
    assert reason(estimator, outputs[:3], min_samples=4) == "3 samples, at least 4 are needed"
    assert reason(estimator, np.full((2, 2), np.nan, np.float32)) == "the model's outputs are not finite for 2 of 2 samples"
    assert reason(estimator, outputs[:1]) == "no labels are likely for which it is defined"


def test_a_class_without_any_calibration_sample_widens_the_interval_and_fails_nothing():
    rng, model = np.random.default_rng(3), SimulatedModel(3)
    outputs, truth = model.samples(rng, 100, shifted=False)
    targets, _ = model.samples(rng, 100, shifted=True)
    full = Estimator(outputs, truth).estimate(["log_loss"], targets)["log_loss"]
    lacking = Estimator(outputs, truth, truth != 2).estimate(["log_loss"], targets)["log_loss"]
    assert np.isfinite(numbers_of(lacking)).all()
    assert width(lacking) > width(full)


def test_the_map_that_is_fitted_is_the_one_that_made_the_labels():
    rng = np.random.default_rng(4)
    outputs = rng.standard_normal((50_000, 2)).astype(np.float32)
    slopes_and_offsets = np.array([0.5, 1.5, -0.3, 0.3])
    shares = recalibrated(log_shares(outputs), slopes_and_offsets)
    fitted = Recalibration.fit(outputs, (rng.random(50_000) >= shares[:, 0]).astype(np.int64))
    assert np.abs(recalibrated(log_shares(outputs), fitted.parameters) - shares).max() < 0.03
    assert fitted.n == 50_000


@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_model_that_is_surer_than_noisy_labels_allow_is_recalibrated(n_classes):
    rng, model = np.random.default_rng(5), SimulatedModel(n_classes, temperature=3.0, shift=0.7)

    def noisy(n: int, *, shifted: bool):
        outputs, labels = model.samples(rng, n, shifted=shifted)
        return 3 * outputs, np.where(rng.random(n) < 0.05, rng.integers(0, n_classes, n), labels)

    estimator = Estimator(*noisy(20_000, shifted=False))
    outputs, labels = noisy(20_000, shifted=True)
    for metric, estimate in estimator.estimate(METRICS, outputs, draws=50).items():
        low, value, high = numbers_of(estimate)
        assert value == pytest.approx(score(metric, outputs, labels).value, abs=0.02), metric
        assert low < value < high, metric


def test_the_map_of_many_classes_has_a_slope_and_an_offset_each():
    rng = np.random.default_rng(6)
    for n_classes, n_parameters in ((32, 160), (33, 66)):
        fitted = Recalibration.fit(*SimulatedModel(n_classes).samples(rng, 200, shifted=False))
        assert fitted.parameters.shape == (n_parameters,)
        assert fitted.factor.shape == (n_parameters, n_parameters)
