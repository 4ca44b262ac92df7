"""Energy and Fréchet distance, LSDD and the classifier against brute force and known values."""

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.linalg import sqrtm
from sklearn import decomposition
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from modyn_dagster.triggering.drift.multivariate.classifier import balanced_accuracies
from modyn_dagster.triggering.drift.multivariate.frechet import gaussian_distances
from modyn_dagster.triggering.drift.multivariate.lsdd import density_differences
from modyn_dagster.triggering.drift.score import split_indicators
from modyn_dagster.triggering.drift.windows import PCA
from tests.triggering.drift.drifting import normal, score, statistic


def frechet_by_definition(x: np.ndarray, y: np.ndarray) -> float:
    one, other = np.cov(x, rowvar=False), np.cov(y, rowvar=False)
    root = np.real(sqrtm(one @ other))
    return float(np.square(x.mean(0) - y.mean(0)).sum() + np.trace(one + other - 2 * root))


@pytest.mark.parametrize("block", [3, 1024])
def test_energy_is_the_double_sum(block):
    x, y = normal(0, 11, 8, 3, shift=0.3)

    def mean(a: np.ndarray, b: np.ndarray, pairs: int) -> float:
        return sum(float(np.linalg.norm(p - q)) for p in a for q in b) / pairs

    expected = 2 * mean(x, y, 88) - mean(x, x, 110) - mean(y, y, 56)
    assert score({"metric": "energy", "block": block}, x, y) == pytest.approx(expected, abs=1e-9)


def test_energy_of_one_column_is_scipys_but_for_its_bias():
    x, y = normal(1, 40, 30, 1, shift=0.5)
    within = [np.abs(w - w.T).sum() for w in (x, y)]
    # scipy's is the root of the estimate that counts every sample's distance to itself.
    bias = within[0] * (1 / (40 * 39) - 1 / 40**2) + within[1] * (1 / (30 * 29) - 1 / 30**2)
    expected = stats.energy_distance(x[:, 0], y[:, 0]) ** 2 - bias
    assert score({"metric": "energy"}, x, y) == pytest.approx(expected, abs=1e-9)


def test_the_mean_of_energy_is_zero_without_drift():
    values = [score({"metric": "energy"}, *normal(seed, 15, 9, 2)) for seed in range(400)]
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(len(values))


def test_the_frechet_distance_is_its_formula():
    x, y = normal(2, 60, 50, 4, shift=0.3)
    y[:, 1] *= 2
    assert score({"metric": "frechet", "components": 4}, x, y) == pytest.approx(frechet_by_definition(x, y), rel=1e-6)


def test_the_frechet_distance_of_normal_columns_is_known():
    x, y = normal(3, 40_000, 40_000, 2)
    y = y * 2 + [3.0, 0.0]
    assert score({"metric": "frechet", "components": 2}, x, y) == pytest.approx(9 + 2 * (1 - 2) ** 2, rel=0.02)


def test_the_frechet_distance_compares_principal_components_of_the_reference():
    x, y = normal(4, 80, 60, 6, shift=0.4)
    x[:, :2] *= 5
    theirs = decomposition.PCA(2).fit(x)
    expected = frechet_by_definition(theirs.transform(x), theirs.transform(y))
    assert score({"metric": "frechet", "components": 2}, x, y) == pytest.approx(expected, rel=1e-6)


def test_gaussians_of_all_splits_at_once_are_those_of_each():
    samples = np.random.default_rng(5).normal(size=(40, 3))
    members = split_indicators(25, 15, 5, np.random.default_rng(6))
    expected = [frechet_by_definition(samples[split == 1], samples[split == 0]) for split in members.T]
    assert gaussian_distances(samples, members) == pytest.approx(np.array(expected), rel=1e-5)


@pytest.mark.parametrize(("n", "d"), [(50, 8), (6, 20)])
def test_components_are_those_of_scikit_learn(n, d):
    samples, others = normal(7, n, 30, d)
    samples *= np.linspace(3, 1, d)
    ours, theirs = PCA.fit(samples, 3), decomposition.PCA(3, svd_solver="full").fit(samples)
    assert np.abs(ours.transform(others)) == pytest.approx(np.abs(theirs.transform(others)), abs=1e-8)


def test_no_more_components_are_kept_than_there_are():
    samples = np.random.default_rng(8).normal(size=(4, 9))
    assert PCA.fit(samples, 100).axes.shape == (9, 3)
    assert PCA.fit(np.ones((2, 5)), 1).axes.shape == (5, 1)


def test_lsdd_estimates_the_integral_of_the_squared_difference():
    """The estimate for two standardized normal densities in one dimension, against quadrature."""
    x, y = normal(9, 6_000, 6_000, 1, shift=1.0)
    spread = np.concatenate([x, y]).std()

    def square(z: float) -> float:
        return float((stats.norm.pdf(z, 0, 1 / spread) - stats.norm.pdf(z, 1 / spread, 1 / spread)) ** 2)

    expected = integrate.quad(square, -9, 9)[0]
    bandwidth = 0.4
    found = score({"metric": "lsdd", "centers": 300, "bandwidth": bandwidth}, x, y)
    assert found / (np.sqrt(np.pi) * bandwidth) == pytest.approx(expected, rel=0.15)


def test_lsdd_solves_its_least_squares_problem():
    rng = np.random.default_rng(10)
    root = rng.normal(size=(6, 6))
    overlaps, differences = root @ root.T + np.eye(6), rng.normal(size=(4, 6))
    values, ridge = density_differences(differences, overlaps)
    weights = np.linalg.solve(overlaps + ridge * np.eye(6), differences.T).T
    expected = [2 * w @ h - w @ overlaps @ w for w, h in zip(weights, differences, strict=True)]
    assert values == pytest.approx(np.array(expected))


def test_the_classifier_is_right_as_often_as_fishers_discriminant():
    """scikit-learn's, with equal priors: the same but for the ridge."""
    x, y = normal(11, 120, 60, 4, shift=0.8)
    samples, members = np.concatenate([x, y]), split_indicators(120, 60, 0, np.random.default_rng(0))
    fold = np.random.default_rng(1).permutation(np.arange(180) % 5)
    right = np.empty(180)
    for number in range(5):
        held = fold == number
        theirs = LinearDiscriminantAnalysis(priors=[0.5, 0.5]).fit(samples[~held], members[~held, 0])
        right[held] = theirs.predict(samples[held]) == members[held, 0]
    expected = (right[:120].mean() + right[120:].mean()) / 2
    assert balanced_accuracies(samples, members, fold)[0] == pytest.approx(expected, abs=0.02)


def test_the_classifier_is_half_right_without_drift_whatever_the_sizes():
    values = [score({"metric": "classifier"}, *normal(seed, 60, 12, 2), seed=seed) for seed in range(200)]
    assert np.mean(values) == pytest.approx(0.5, abs=0.03)


def test_the_classifier_tells_apart_what_is_apart():
    assert score({"metric": "classifier"}, *normal(12, 50, 50, 3, shift=9.0)) == 1.0


def test_a_split_that_leaves_nothing_to_learn_from_is_a_guess():
    x, y = normal(13, 2, 2, 1)
    assert 0 <= score({"metric": "classifier", "folds": 4}, x, y) <= 1


def test_details_say_what_was_chosen():
    x, y = normal(14, 30, 20, 3)
    assert set(statistic({"metric": "lsdd", "centers": 10}, x, y)) == {"statistic", "p_value", "bandwidth", "ridge", "centers"}
    assert statistic({"metric": "frechet"}, x, y)["components"] == 3
