"""Expected scores against an enumeration of all labels."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.evaluation.label_free import expectation
from modyn_dagster.evaluation.label_free.expectation import expected_f1, expected_roc_auc, mean_over_classes, poisson_binomial
from modyn_dagster.evaluation.metrics.registry import score

shares_of_few = st.lists(st.sampled_from([0.0, 0.1, 0.4, 0.5, 0.9, 1.0]), min_size=1, max_size=7).map(np.array)


def enumerated(shares: np.ndarray, value_of) -> tuple[float, float]:
    """Mean of a score over all labels of two classes that it is defined for, and the probability of these."""
    total, defined = 0.0, 0.0
    for labels in product([0, 1], repeat=len(shares)):
        probability = float(np.prod(np.where(labels, shares, 1 - shares)))
        value = value_of(np.array(labels))
        if value is not None:
            total, defined = total + probability * value, defined + probability
    return total / defined if defined > 0 else np.nan, defined


def outputs_of(margins) -> np.ndarray:
    return np.asarray(np.stack([np.zeros(len(margins)), np.asarray(margins)], axis=1), dtype=np.float32)


@given(shares_of_few, st.data())
def test_expected_f1_and_area_are_the_means_over_all_labels(shares, data):
    margins = data.draw(st.lists(st.integers(-2, 2), min_size=len(shares), max_size=len(shares)))
    outputs = outputs_of(margins)
    found = {
        "f1": expected_f1(shares, outputs[:, 1] > outputs[:, 0]),
        "roc_auc": expected_roc_auc(shares, np.unique(margins, return_inverse=True)[1].astype(np.int32)),
    }
    for metric, expected in found.items():
        value, defined = enumerated(shares, lambda labels, m=metric: score(m, outputs, labels).value)
        assert expected.defined == pytest.approx(defined, abs=1e-12)
        if defined > 0:
            assert expected.value == pytest.approx(value, abs=1e-12)


@given(shares_of_few)
def test_the_number_of_successes_has_the_distribution_of_an_enumeration(shares):
    counts = [enumerated(shares, lambda labels, k=k: float(labels.sum() == k))[0] for k in range(len(shares) + 1)]
    np.testing.assert_allclose(poisson_binomial(shares), counts, atol=1e-12)


@pytest.mark.parametrize("n", [200, 800])
def test_the_approximation_for_many_samples_is_wrong_by_less_than_two_over_n(monkeypatch, n):
    rng = np.random.default_rng(n)
    margins = rng.integers(-20, 20, n)
    shares, ranks = 1 / (1 + np.exp(-margins / 8)), np.unique(margins, return_inverse=True)[1].astype(np.int32)
    exact = expected_f1(shares, margins > 0), expected_roc_auc(shares, ranks)
    monkeypatch.setattr(expectation, "MOST_EXACT", 0)
    for one, other in zip(exact, (expected_f1(shares, margins > 0), expected_roc_auc(shares, ranks)), strict=True):
        assert 0 < abs(one.value - other.value) < 2 / n
        assert one.defined == pytest.approx(other.defined)


def test_classes_that_cannot_occur_are_in_no_mean():
    absent = expected_f1(np.zeros(3), np.zeros(3, np.bool_))
    assert absent.defined == 0
    present = expected_f1(np.array([1.0, 1.0, 0.0]), np.array([True, False, False]))
    assert mean_over_classes([absent, present]) == pytest.approx(2 / 3)
    assert np.isnan(mean_over_classes([absent]))
