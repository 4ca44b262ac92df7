"""Laws of every drift metric: invariances, seeds, false alarms, windows without a score."""

import numpy as np
import pytest
import torch
from scipy.stats import binom, cramervonmises_2samp

from tests.examples import examples
from tests.triggering.drift.drifting import CORRECTED, METRICS, measured, normal, score

ALL = METRICS | CORRECTED
EVERY = pytest.mark.parametrize("name", ALL)
#: Sums that are taken in another order differ in their last digits.
RELATIVE, ABSOLUTE = 1e-6, 1e-9
#: Its draws belong to places in the windows (folds, features, centers), so another order of samples draws others.
DRAWS_BY_PLACE = {"classifier", "lsdd", "corrected_wasserstein"}


@EVERY
def test_equal_seeds_agree_whatever_was_drawn_before(name):
    reference, current = normal(0, 60, 40, 3, shift=0.3)
    options = {"seed": 5, "sample_size": 30, "pca": 2}
    first = [measured(ALL[name], reference, current, p_values=p, **options) for p in (False, True)]
    np.random.default_rng().normal(size=10)
    torch.rand(3)
    assert [measured(ALL[name], reference, current, p_values=p, **options) for p in (False, True)] == first


@EVERY
def test_the_number_of_threads_does_not_matter(name):
    reference, current = normal(0, 700, 400, 20, shift=0.1)
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            spec = ALL[name] | {"permutations": 20} | ({"block": 300} if "block" in ALL[name] else {})
            found += [score(spec, reference, current, p_values=p_values) for p_values in (True, False)]
    finally:
        torch.set_num_threads(threads)
    assert found[2:] == pytest.approx(found[:2], rel=RELATIVE, abs=ABSOLUTE)


@pytest.mark.parametrize("name", sorted(set(ALL) - DRAWS_BY_PLACE))
def test_the_order_of_samples_does_not_matter(name):
    reference, current = normal(1, 50, 30, 3, shift=0.5)
    rng = np.random.default_rng(0)
    expected = score(ALL[name], reference, current)
    assert score(ALL[name], rng.permutation(reference), rng.permutation(current)) == pytest.approx(
        expected, rel=RELATIVE, abs=ABSOLUTE
    )


@pytest.mark.parametrize("name", sorted(set(ALL) - DRAWS_BY_PLACE - {"frechet"}))
def test_the_windows_can_be_swapped(name):
    reference, current = normal(2, 50, 30, 3, shift=0.5)
    assert score(ALL[name], current, reference) == pytest.approx(score(ALL[name], reference, current), rel=RELATIVE, abs=ABSOLUTE)


@EVERY
def test_shifting_both_windows_changes_nothing(name):
    reference, current = normal(3, 50, 30, 3, shift=0.5)
    expected = score(ALL[name], reference, current)
    assert score(ALL[name], reference + 8.0, current + 8.0) == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("name", sorted(set(ALL) - {"energy", "frechet", "wasserstein"}))
def test_scaling_both_windows_changes_nothing_for_what_has_no_unit(name):
    reference, current = normal(4, 50, 30, 3, shift=0.5)
    expected = score(ALL[name], reference, current)
    assert score(ALL[name], reference * 4, current * 4) == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize(("name", "power"), [("energy", 1), ("wasserstein", 1), ("frechet", 2)])
def test_what_has_a_unit_scales_with_it(name, power):
    reference, current = normal(4, 50, 30, 3, shift=0.5)
    expected = score(METRICS[name], reference, current) * 4**power
    assert score(METRICS[name], reference * 4, current * 4) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", METRICS)
def test_more_drift_scores_higher_and_much_of_it_has_the_smallest_p_value(name):
    near, far = (normal(5, 80, 60, 3, shift=shift) for shift in (0.0, 2.0))
    assert score(METRICS[name], *far) > score(METRICS[name], *near)
    assert score(METRICS[name] | {"permutations": 49}, *far, p_values=True) == pytest.approx(1 / 50)


@pytest.mark.law
@EVERY
@pytest.mark.parametrize("width", [1, 3])
def test_false_alarms_are_as_frequent_as_the_p_value_says(name, width):
    """At alpha 0.1 on exchangeable windows of unequal size, some values equal: within five in a million of the binomial."""
    trials, alpha = examples(150), 0.1
    spec = ALL[name] | {"permutations": 39 if name in CORRECTED else 19}
    rng = np.random.default_rng(6)
    alarms = 0
    for trial in range(trials):
        samples = rng.normal(size=(36, width)).round(1)
        alarms += score(spec, samples[:20], samples[20:], seed=trial, p_values=True) <= alpha
    assert alarms <= binom.ppf(1 - 5e-6, trials, alpha)
    if name not in CORRECTED | {"largest_ks": None}:
        assert alarms >= binom.ppf(5e-6, trials, alpha)


@pytest.mark.parametrize("name", ["mmd", "energy", "ks", "frechet"])
def test_components_fitted_to_few_samples_of_many_features_cause_no_false_alarms(name):
    rng = np.random.default_rng(7)
    spec = METRICS[name] | {"permutations": 19}
    alarms = 0
    for trial in range(60):
        samples = rng.normal(size=(40, 60))
        alarms += score(spec, samples[:20], samples[20:], seed=trial, p_values=True, pca=5) <= 0.1
    assert alarms <= binom.ppf(1 - 5e-6, 60, 0.1)


@EVERY
@pytest.mark.parametrize("p_values", [False, True])
@pytest.mark.parametrize(
    ("reference", "current", "why"),
    [
        (np.empty((0, 2)), np.zeros((5, 2)), "the reference window has 0 of at least 2 samples"),
        (np.zeros((5, 2)), np.zeros((1, 2)), "the current window has 1 of at least 2 samples"),
        (np.zeros((5, 2)), np.full((4, 2), np.nan), "4 of 4 samples of the current window have a feature that is NaN"),
        (np.array([[1.0], [np.inf], [2.0]]), np.zeros((4, 1)), "1 of 3 samples of the reference window"),
        (np.empty((5, 0)), np.empty((5, 0)), "samples have no features"),
    ],
)
def test_windows_that_say_nothing_have_no_score_and_a_reason(name, reference, current, why, p_values):
    found = measured(ALL[name], reference, current, p_values=p_values)
    assert found.values == {"it": None}
    assert why in found.details["why"]
    assert (found.details["n_reference"], found.details["n_current"]) == (len(reference), len(current))


@EVERY
@pytest.mark.parametrize("p_values", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_that_overflow_have_no_score_or_a_finite_one(name, p_values, dtype):
    largest = float(np.finfo(dtype).max)
    reference = np.linspace(-largest / 2, largest / 2, 12, dtype=dtype).reshape(6, 2)
    value = measured(ALL[name], reference, reference[::-1] / 2, p_values=p_values).values["it"]
    assert value is None or np.isfinite(value)


@EVERY
def test_constant_columns_are_no_drift(name):
    reference, current = np.full((9, 2), 3.5), np.full((7, 2), 3.5)
    neutral = {"classifier": 0.5}.get(name, 1.0 if name in CORRECTED else 0.0)
    if name == "cramer_von_mises":
        # Of equal values scipy's statistic, and so ours, is not 0.
        neutral = cramervonmises_2samp(reference[:, 0], current[:, 0]).statistic
    assert score(ALL[name], reference, current) == pytest.approx(neutral, abs=1e-12)
    assert score(ALL[name], reference, current, p_values=True) == 1.0


@EVERY
def test_a_constant_column_beside_others_is_harmless(name):
    reference, current = normal(8, 40, 30, 2, shift=0.4)
    reference[:, 1] = current[:, 1] = 1e6
    assert np.isfinite(score(ALL[name], reference, current))
    assert 0 < score(ALL[name], reference, current, p_values=True) <= 1


@EVERY
def test_two_samples_on_either_side_are_enough(name):
    reference, current = normal(9, 2, 2, 1)
    assert np.isfinite(score(ALL[name], reference, current))
    assert 0 < score(ALL[name], reference, current, p_values=True) <= 1


@EVERY
def test_whole_and_single_precision_numbers_score_as_double_ones(name):
    rng = np.random.default_rng(10)
    reference, current = rng.integers(0, 9, (40, 2)), rng.integers(2, 11, (30, 2))
    expected = score(ALL[name], reference.astype(np.float64), current.astype(np.float64))
    assert score(ALL[name], reference, current) == pytest.approx(expected)
    assert score(ALL[name], reference.astype(np.float32), current.astype(np.float32)) == pytest.approx(expected, rel=1e-4)


@EVERY
@pytest.mark.parametrize("pca", [None, 2])
@pytest.mark.parametrize("exponent", [-1060, -1000, -566, -532, -60, 60, 100, 532, 566, 1010])
def test_features_of_any_scale_have_the_p_value_of_their_usual_scale_or_none(name, pca, exponent):
    reference, current = normal(3, 60, 40, 3, shift=3.0)
    spec = ALL[name] | {"permutations": 20}
    usual = score(spec, reference, current, p_values=True, pca=pca)
    scaled = measured(spec, np.ldexp(reference, exponent), np.ldexp(current, exponent), p_values=True, pca=pca)
    # The Fréchet distance is a square, and a square may leave the range of numbers.
    assert scaled.values["it"] == pytest.approx(usual, rel=1e-9) or (name == "frechet" and scaled.values["it"] is None)


@pytest.mark.parametrize("factor", [1e-160, 1e160])
def test_a_bandwidth_of_another_scale_gives_no_answer(factor):
    reference, current = (window * factor for window in normal(3, 60, 40, 3, shift=3.0))
    found = measured({"metric": "mmd", "bandwidth": 1.0}, reference, current)
    assert found.values["it"] is None
    assert "bandwidth" in found.details["statistics"]["it"]["why"]


@pytest.mark.parametrize("seed", range(20))
def test_the_distance_of_a_window_from_itself_is_not_negative(seed):
    window, _ = normal(seed, 30, 30, 3)
    assert score({"metric": "frechet", "components": 3}, window, window) >= 0
