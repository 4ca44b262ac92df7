import sys
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from modyn_dagster.evaluation import bootstrap, confidence_interval, find_metric, score, wilson
from modyn_dagster.evaluation.metrics.confidence import score_resamples
from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples
from modyn_dagster.reproducibility.randomness import rng_for
from tests.examples import examples


@given(st.integers(1, 500), st.data(), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_wilsons_interval_agrees_with_scipy(n: int, data: st.DataObject, level: float) -> None:
    successes = data.draw(st.integers(0, n))
    low, high, method = wilson(successes, n, level)
    expected = binomtest(successes, n).proportion_ci(level, "wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert 0 <= low <= successes / n <= high <= 1
    assert method == "wilson"


@pytest.mark.parametrize("bad", [(3, 2, 0.9), (0, 0, 0.9), (-1, 5, 0.9), (1, 2, 1.0)])
def test_what_is_no_share_or_no_level_is_refused(bad: tuple[int, int, float]) -> None:
    with pytest.raises(ValueError, match=r"successes|level"):
        wilson(*bad)


def test_the_bootstrap_covers_the_true_value_about_as_often_as_it_says() -> None:
    """Mean absolute error of standard normal targets against 0 is sqrt(2 / pi)."""
    hits = 0
    for trial in range(60):
        truth = rng_for(7, "coverage", trial).normal(size=80)
        low, high, _ = bootstrap("mae", np.zeros((80, 1), np.float32), truth, level=0.9, resamples=150, seed=trial) or (1, 0, "")
        hits += low <= np.sqrt(2 / np.pi) <= high
    assert 46 <= hits <= 60


NAMES = [
    *("accuracy", "accuracy_top2", "accuracy_class_1", "f1", "f1_macro", "f1_micro", "f1_weighted", "f1_class_0", "f1_class_2"),
    *("roc_auc", "roc_auc_class_0", "pr_auc", "pr_auc_class_2", "log_loss", "log_loss_class_1", "brier", "brier_class_0"),
    "calibration_error",
]


@pytest.mark.long
@settings(max_examples=examples(400), deadline=None)
@given(st.sampled_from(NAMES), st.integers(2, 3), st.integers(1, 9), st.integers(0, 10**6), st.booleans())
def test_many_resamples_at_once_give_what_each_gives_alone(name: str, k: int, n: int, seed: int, odd: bool) -> None:
    rng = np.random.default_rng(seed)
    # Few distinct outputs, so that there are ties; few classes, so that some resamples lack one.
    outputs, truth = rng.integers(-2, 3, (n, k)).astype(np.float32), rng.integers(0, rng.integers(1, k + 1), n)
    if odd:
        truth[0], outputs[-1, 0] = rng.choice([k, truth[0]]), rng.choice([np.nan, outputs[-1, 0]])
    rows = rng.integers(0, n, (15, n))
    expected = [score(name, outputs[each], truth[each]).value for each in rows]
    found = score_resamples(find_metric(name), EvaluationSamples(outputs, truth), rows)
    np.testing.assert_allclose(found, [np.nan if value is None else value for value in expected], rtol=1e-12, atol=1e-12)


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(["mae", "mse", "r2"]), st.integers(1, 12), st.integers(0, 10**6), st.booleans())
def test_many_resamples_of_targets_give_what_each_gives_alone(name: str, n: int, seed: int, odd: bool) -> None:
    rng = np.random.default_rng(seed)
    outputs, truth = rng.normal(size=(n, 1)).astype(np.float32), rng.integers(0, 3, n).astype(np.float64)
    if odd:
        truth[0] = np.inf
    rows = rng.integers(0, n, (15, n))
    expected = [score(name, outputs[each], truth[each]).value for each in rows]
    found = score_resamples(find_metric(name), EvaluationSamples(outputs, truth), rows)
    np.testing.assert_allclose(found, [np.nan if value is None else value for value in expected], rtol=1e-12, atol=1e-12)


def test_a_metric_of_ones_own_is_computed_resample_by_resample(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_metrics")
    module.__dict__["largest"] = lambda outputs, truth: float(outputs.max()) if len(set(truth)) > 1 else 1 / 0
    monkeypatch.setitem(sys.modules, "own_metrics", module)
    outputs, rows = np.arange(8, dtype=np.float32).reshape(4, 2), np.array([[0, 0, 1, 1], [0, 0, 0, 0], [3, 0, 1, 1]])
    found = score_resamples(find_metric("own_metrics:largest"), EvaluationSamples(outputs, np.array([0, 1, 0, 1])), rows)
    np.testing.assert_array_equal(found, [3.0, np.nan, 7.0])


def test_shares_get_wilsons_interval_and_other_metrics_the_bootstraps() -> None:
    rng = np.random.default_rng(0)
    outputs, truth = rng.normal(size=(50, 2)).astype(np.float32), rng.integers(0, 2, 50)
    right = int((outputs.argmax(1) == truth).sum())
    assert confidence_interval("accuracy", outputs, truth) == wilson(right, 50)
    found = confidence_interval("roc_auc", outputs, truth, resamples=100, seed=1)
    assert found is not None
    assert found.method == "bootstrap"
    assert found == confidence_interval("roc_auc", outputs, truth, resamples=100, seed=1)


def test_what_is_undefined_has_no_interval() -> None:
    outputs = np.zeros((30, 2), np.float32)
    assert confidence_interval("roc_auc", outputs, np.zeros(30, np.int64), resamples=50) is None
    assert confidence_interval("accuracy", outputs[:0], np.zeros(0, np.int64)) is None
