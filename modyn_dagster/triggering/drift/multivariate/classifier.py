"""Classifier two-sample test (Lopez-Paz & Oquab, ICLR 2017)."""

from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.spec.triggers.drift import ClassifierMetric
from modyn_dagster.triggering.drift.score import Score, permutation_p_value, split_indicators
from modyn_dagster.triggering.drift.windows import Float64, Windows, standardized

#: Share of the mean variance of columns that is added to each: keeps the solution finite where columns repeat each other.
_RIDGE: Final = 0.01


def classifier(spec: ClassifierMetric, windows: Windows, *, p_value: bool) -> Score:
    """Balanced accuracy of a classifier that tells the windows apart, on samples held out in turn.

    The accuracy is 1/2 on average without drift, whatever the sizes of the windows, and invariant to a shift and a scale of
    columns. The classifier is Fisher's linear discriminant with a ridge on standardized columns: it detects shifts of means,
    and all splits share one factorization per fold.

    Args:
        spec: number of folds, permutations.
        windows: reference and current window.
        p_value: compute the p-value by permutation too.

    >>> rng = np.random.default_rng(0)
    >>> windows = Windows(rng.normal(size=(60, 2)), rng.normal(1.0, size=(60, 2)))
    >>> score = classifier(ClassifierMetric(metric="classifier"), windows, p_value=True)
    >>> round(score.value, 3), round(score.p_value, 3)
    (0.692, 0.005)
    """
    members = split_indicators(windows.n, windows.m, spec.permutations if p_value else 0, windows.rng("permutations"))
    fold = np.arange(windows.n + windows.m) % spec.folds
    accuracies = balanced_accuracies(standardized(windows.pooled), members, windows.rng("folds").permutation(fold))
    return Score(float(accuracies[0]), float(permutation_p_value(accuracies)) if p_value else None)


def balanced_accuracies(samples: Float64, members: npt.NDArray[np.uint8], fold: npt.NDArray[np.int64]) -> Float64:
    """Mean of the accuracies in both windows, ``float64[P]``, from ``float64[N, d]``, ``uint8[N, P]`` and ``int64[N]``."""
    in_reference = members.astype(np.bool_)
    scores = np.zeros(members.shape)
    for number in range(int(fold.max()) + 1):
        held_out = fold == number
        if held_out.any() and not held_out.all():
            scores[held_out] = _discriminants(samples[~held_out], in_reference[~held_out], samples[held_out])
    # A sample on the boundary counts half.
    right = np.where(in_reference, (np.sign(scores) + 1) / 2, (1 - np.sign(scores)) / 2)
    reference = (right * in_reference).sum(axis=0) / in_reference.sum(axis=0)
    current = (right * ~in_reference).sum(axis=0) / (~in_reference).sum(axis=0)
    return np.asarray((reference + current) / 2)


def _discriminants(training: Float64, in_reference: npt.NDArray[np.bool_], held_out: Float64) -> Float64:
    """Discriminant of every split, positive for samples like the reference, ``float64[len(held_out), P]``."""
    centered = training - training.mean(axis=0)
    covariance = centered.T @ centered / len(training)
    strength = _RIDGE * float(np.trace(covariance)) / len(covariance) or 1.0
    counts = in_reference.sum(axis=0)
    sums = in_reference.T.astype(np.float64) @ training
    reference = sums / np.maximum(counts, 1)[:, None]
    current = (training.sum(axis=0) - sums) / np.maximum(len(training) - counts, 1)[:, None]
    directions = np.linalg.solve(covariance + strength * np.eye(len(covariance)), (reference - current).T)
    middles = ((reference + current) / 2 * directions.T).sum(axis=1)
    # A split without training samples of both windows has no discriminant.
    return np.asarray(np.where((counts > 0) & (counts < len(training)), held_out @ directions - middles, 0.0))
