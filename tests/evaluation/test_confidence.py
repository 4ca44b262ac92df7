import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from modyn_dagster.evaluation import bootstrap, confidence_interval, wilson
from modyn_dagster.randomness import rng_for


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
