"""Expected scores against the published formulas of CBPE: an expected confusion matrix, and an expected ROC curve."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.evaluation.label_free.expectation import MOST_EXACT, expected_f1, expected_roc_auc
from modyn_dagster.evaluation.metrics.calibration import expected_accuracy

N = MOST_EXACT + 200


def expected_confusion(shares: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Add up, sample by sample, what it is likely to be: a prediction of probability s is right with s, and wrong with 1 - s."""
    cells = dict.fromkeys(("tp", "fp", "fn", "tn"), 0.0)
    for share, positive in zip(shares.tolist(), predicted.tolist(), strict=True):
        cells["tp" if positive else "fn"] += share
        cells["fp" if positive else "tn"] += 1 - share
    return cells


def area_of_expected_curve(shares: np.ndarray, scores: np.ndarray) -> float:
    """Area by trapezoids under the expected rates of true and false positives at every threshold."""
    points = [(0.0, 0.0)]
    for threshold in np.unique(scores)[::-1]:
        cells = expected_confusion(shares, scores >= threshold)
        points.append((cells["fp"] / (cells["fp"] + cells["tn"]), cells["tp"] / (cells["tp"] + cells["fn"])))
    return sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(points))


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.floats(0.2, 5.0))
def test_scores_of_many_samples_are_those_of_the_expected_confusion_matrix_and_curve(seed, spread):
    rng = np.random.default_rng(seed)
    scores = rng.integers(-20, 20, N)
    shares = 1 / (1 + np.exp(-(scores / 10 + rng.normal(0, 1, N)) * spread))
    cells = expected_confusion(shares, scores > 0)
    f1 = cells["tp"] / (cells["tp"] + (cells["fp"] + cells["fn"]) / 2)
    assert expected_f1(shares, scores > 0).value == pytest.approx(f1, abs=1e-12)
    # The curve pairs every sample with itself, too, as a tie: n of up to n * n / 4 pairs.
    area = expected_roc_auc(shares, np.unique(scores, return_inverse=True)[1].astype(np.int32)).value
    own = float((shares * (1 - shares)).sum() / (shares.sum() * (1 - shares).sum()))
    assert area == pytest.approx((area_of_expected_curve(shares, scores) - own / 2) / (1 - own), abs=1e-12)


@pytest.mark.parametrize("n", [30, 300])
def test_scores_of_few_samples_differ_from_the_formulas_by_less_than_two_over_n(n):
    rng = np.random.default_rng(n)
    scores = rng.integers(-20, 20, n)
    shares = 1 / (1 + np.exp(-scores / 8))
    cells = expected_confusion(shares, scores > 0)
    f1 = cells["tp"] / (cells["tp"] + (cells["fp"] + cells["fn"]) / 2)
    assert 0 < abs(expected_f1(shares, scores > 0).value - f1) < 2 / n
    area = expected_roc_auc(shares, np.unique(scores, return_inverse=True)[1].astype(np.int32)).value
    assert 0 < abs(area - area_of_expected_curve(shares, scores)) < 2 / n


def test_the_expected_accuracy_is_the_diagonal_of_the_expected_confusion_matrix():
    rng = np.random.default_rng(0)
    margins = np.repeat([-2.0, -0.5, 0.5, 2.0], 100).astype(np.float32)
    truth = (rng.random(400) < 1 / (1 + np.exp(-margins))).astype(np.int64)
    outputs = np.stack([np.zeros_like(margins), margins], axis=1)
    # Four confidences, two on either side: shares of right predictions rise with the confidence on both.
    right = ((margins > 0) == truth).astype(float)
    strong = np.abs(margins) == 2
    rate = np.where(strong, right[strong].mean(), right[~strong].mean())
    assert right[strong].mean() > right[~strong].mean()
    cells = expected_confusion(np.where(margins > 0, rate, 1 - rate), margins > 0)
    assert expected_accuracy(outputs, truth, outputs) == pytest.approx((cells["tp"] + cells["tn"]) / 400, abs=1e-12)
