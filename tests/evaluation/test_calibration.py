"""Calibrated confidences, and the accuracy to expect of them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from modyn_dagster.evaluation.metrics.calibration import confidences, expected_accuracy, isotonic

points = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 1)), min_size=1, max_size=40)


@given(points)
def test_isotonic_is_the_one_of_scikit_learn(pairs):
    x, y = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))
    knots, shares = isotonic(x, y)
    oracle = IsotonicRegression().fit(x, y)
    np.testing.assert_allclose(shares, oracle.predict(knots), atol=1e-12)
    assert (np.diff(shares) >= 0).all()


@given(st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_confidence_is_the_largest_softmax_probability(n_classes, seed):
    logits = np.random.default_rng(seed).normal(size=(20, n_classes), scale=5).astype(np.float32)
    powers = np.exp(logits.astype(np.float64))
    np.testing.assert_allclose(confidences(logits), (powers / powers.sum(axis=1, keepdims=True)).max(axis=1), rtol=1e-12)


def drawn(n: int, seed: int, spread: float = 1.0):
    """Logits that are too sure by a factor of three, and labels."""
    rng = np.random.default_rng(seed)
    margin = rng.normal(size=n) * spread
    labels = (rng.random(n) < 1 / (1 + np.exp(-margin))).astype(np.int64)
    return np.stack([np.zeros(n), 3 * margin], axis=1).astype(np.float32), labels


def test_the_accuracy_of_a_model_that_is_too_sure_is_told_without_labels():
    known, truth = drawn(20_000, 0)
    for spread in (0.3, 1.0, 3.0):
        outputs, labels = drawn(20_000, 1, spread)
        actual = np.mean(outputs.argmax(axis=1) == labels)
        found = expected_accuracy(known, truth, outputs)
        assert found is not None
        assert abs(found - actual) < 0.02
        assert confidences(outputs).mean() - actual > 0.05, "uncalibrated it would be far off"


def test_without_samples_or_labels_there_is_nothing_to_expect():
    known, truth = drawn(10, 0)
    assert expected_accuracy(known, truth, known[:0]) is None
    assert expected_accuracy(known[:0], truth[:0], known) is None
    assert expected_accuracy(known, np.full(10, -1), known) is None
