"""Metrics of single columns against scipy and brute force, and their reduction over columns."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from scipy.spatial.distance import jensenshannon

from modyn_dagster.triggering.drift.score import smallest_corrected
from modyn_dagster.triggering.drift.univariate.cramer_von_mises import cramer_von_mises_p_values
from modyn_dagster.triggering.drift.univariate.kolmogorov_smirnov import kolmogorov_smirnov_p_values
from tests.triggering.drift.drifting import measured, normal, score, statistic

COLUMN = arrays(np.float64, st.integers(2, 30), elements=st.integers(-5, 5).map(float))


def histograms(reference: np.ndarray, current: np.ndarray, bins: int) -> tuple[np.ndarray, np.ndarray]:
    both = np.concatenate([reference, current])
    counts = [np.histogram(window, bins, (both.min(), both.max()))[0] / len(window) for window in (reference, current)]
    return counts[0], counts[1]


def area_between(reference: np.ndarray, current: np.ndarray) -> float:
    places = sorted({*reference, *current})
    return float(sum(abs((reference <= a).mean() - (current <= a).mean()) * (b - a) for a, b in pairwise(places)))


ORACLES = {
    "ks": lambda x, y: float(stats.ks_2samp(x, y, method="asymp").statistic),
    "cramer_von_mises": lambda x, y: float(stats.cramervonmises_2samp(x, y, method="asymptotic").statistic),
    "wasserstein": lambda x, y: float(stats.wasserstein_distance(x, y)),
    "hellinger": lambda x, y: float(np.sqrt(max(0.0, 1 - np.sqrt(np.multiply(*histograms(x, y, 30))).sum()))),
    "jensen_shannon": lambda x, y: float(jensenshannon(*histograms(x, y, 30))),
}
P_VALUES = {
    "ks": lambda x, y: float(stats.ks_2samp(x, y, method="asymp").pvalue),
    "cramer_von_mises": lambda x, y: float(stats.cramervonmises_2samp(x, y, method="asymptotic").pvalue),
}
EVERY = pytest.mark.parametrize("metric", ORACLES)


@EVERY
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("digits", [None, 1], ids=["distinct", "ties"])
@pytest.mark.parametrize(("n", "m"), [(2, 2), (40, 70), (300, 200)])
def test_the_statistic_is_that_of_scipy(metric, n, m, digits, dtype):
    windows = normal(1, n, m, 1, shift=0.3)
    x, y = (window.round(digits).astype(dtype) if digits else window.astype(dtype) for window in windows)
    expected = ORACLES[metric](x[:, 0].astype(np.float64), y[:, 0].astype(np.float64))
    assert score({"metric": metric}, x, y) == pytest.approx(expected, rel=1e-9, abs=1e-7 if metric == "hellinger" else 1e-12)


@given(x=COLUMN, y=COLUMN)
def test_whole_numbers_in_any_number_give_the_statistic_of_scipy(x, y):
    for metric in ("ks", "cramer_von_mises", "wasserstein"):
        assert score({"metric": metric}, x, y) == pytest.approx(ORACLES[metric](x, y), abs=1e-9)
    assert score({"metric": "wasserstein"}, x, y) == pytest.approx(area_between(x, y), abs=1e-9)


@pytest.mark.parametrize("metric", P_VALUES)
@pytest.mark.parametrize("shift", [0.0, 0.2, 3.0])
@pytest.mark.parametrize(("n", "m"), [(5, 4), (100, 73), (400, 400)])
def test_the_p_value_of_one_column_is_the_asymptotic_one_of_scipy(metric, n, m, shift):
    x, y = normal(2, n, m, 1, shift=shift)
    expected = P_VALUES[metric](x[:, 0], y[:, 0])
    assert score({"metric": metric}, x, y, p_values=True) == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_the_statistic_of_kolmogorov_and_smirnov_is_scipys_to_the_last_bit():
    x, y = normal(3, 500, 333, 64)
    x[:, :32], y[:, :32] = x[:, :32].round(1), y[:, :32].round(1)
    theirs = [stats.ks_2samp(x[:, c], y[:, c], method="asymp") for c in range(64)]
    found = statistic({"metric": "ks", "reduce": "max"}, x, y)
    assert found["max"] == max(one.statistic for one in theirs)
    assert found["column"] == int(np.argmax([one.statistic for one in theirs]))
    p_values = kolmogorov_smirnov_p_values(np.array([one.statistic for one in theirs]), 500, 333)
    assert p_values.tolist() == [one.pvalue for one in theirs]


def test_p_values_of_cramer_and_von_mises_stay_in_bounds_for_any_statistic():
    p_values = cramer_von_mises_p_values(np.array([-1.0, 0.0, 0.01, 0.1, 1.0, 5.0, 50.0, 1e4]), 300, 200)
    assert p_values[0] == 1.0
    assert (np.diff(p_values) <= 0).all()
    assert p_values[-1] == pytest.approx(0.0, abs=1e-12)


@EVERY
def test_columns_are_reduced_by_mean_or_maximum(metric):
    x, y = normal(4, 60, 50, 5, shift=0.2)
    each = [ORACLES[metric](x[:, c], y[:, c]) for c in range(5)]
    assert score({"metric": metric}, x, y) == pytest.approx(np.mean(each))
    assert score({"metric": metric, "reduce": "max"}, x, y) == pytest.approx(np.max(each))
    assert statistic({"metric": metric}, x, y)["column"] == int(np.argmax(each))


@pytest.mark.parametrize("metric", P_VALUES)
@pytest.mark.parametrize("p_values", [False, True])
def test_the_smallest_corrected_p_value_is_a_score(metric, p_values):
    x, y = normal(5, 60, 50, 6, shift=0.25)
    each = np.sort([P_VALUES[metric](x[:, c], y[:, c]) for c in range(6)])
    for correction in ("bonferroni", "holm"):
        spec = {"metric": metric, "reduce": "p_value", "correction": correction}
        assert score(spec, x, y, p_values=p_values) == pytest.approx(min(1.0, each[0] * 6), rel=1e-5)
    spec = {"metric": metric, "reduce": "p_value", "correction": "fdr"}
    expected = stats.false_discovery_control(each).min()
    assert score(spec, x, y, p_values=p_values) == pytest.approx(expected, rel=1e-5)


def test_corrections_by_hand():
    p_values = np.array([0.04, 0.01, 0.03, 0.9])
    assert smallest_corrected(p_values, "bonferroni") == smallest_corrected(p_values, "holm") == pytest.approx(0.04)
    assert smallest_corrected(p_values, "fdr") == pytest.approx(min(0.01 * 4, 0.03 * 4 / 2, 0.04 * 4 / 3))
    assert smallest_corrected(np.array([0.7, 0.9]), "bonferroni") == 1.0


@EVERY
def test_permutations_of_columns_are_permutations_of_samples(metric):
    """The p-value by brute force, over splits drawn here, agrees with ours within its own error."""
    x, y = normal(6, 30, 20, 2, shift=0.35)
    pooled, rng = np.concatenate([x, y]), np.random.default_rng(0)

    def mean(order: np.ndarray) -> float:
        return float(np.mean([ORACLES[metric](pooled[order[:30], c], pooled[order[30:], c]) for c in range(2)]))

    observed = mean(np.arange(50))
    expected = np.mean([mean(rng.permutation(50)) >= observed - 1e-12 for _ in range(400)])
    assert score({"metric": metric, "permutations": 2_000}, x, y, p_values=True) == pytest.approx(expected, abs=0.1)


def test_p_values_without_a_formula_cannot_fall_below_columns_over_permutations():
    x, y = normal(7, 50, 50, 4, shift=9.0)
    spec = {"metric": "wasserstein", "reduce": "p_value", "permutations": 99}
    assert score(spec, x, y, p_values=True) == pytest.approx(4 / 100)


def test_softmax_outputs_are_columns_like_others():
    """KS on softmax outputs (Rabanser et al., NeurIPS 2019): nothing but KS where the features are outputs."""
    logits, drifted = normal(8, 80, 60, 3, shift=0.0)
    drifted[:, 0] += 1.0
    outputs = [np.exp(z) / np.exp(z).sum(axis=1, keepdims=True) for z in (logits, drifted)]
    found = measured({"metric": "ks", "reduce": "p_value"}, *outputs, of="outputs")
    assert found.values["it"] == pytest.approx(
        min(1.0, 3 * min(stats.ks_2samp(*(o[:, c] for o in outputs), method="asymp").pvalue for c in range(3))), rel=1e-6
    )
