"""Classifier two-sample test (Lopez-Paz & Oquab, ICLR 2017)."""

from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.spec.triggers.drift import ClassifierMetric
from modyn_dagster.triggering.drift.score import Float64, Score, indicators, permutation_p_value
from modyn_dagster.triggering.drift.windows import Windows, standardized

#: Of the mean variance of columns, added to each: keeps the solution finite where columns repeat each other.
_RIDGE: Final = 0.01


def classifier(spec: ClassifierMetric, windows: Windows, *, p_value: bool) -> Score:
    """Balanced accuracy of telling by a sample's features which window it is from, on samples held out in turn.

    It is 1/2 on average without drift, whatever the sizes of the windows. The classifier is Fisher's linear discriminant with a
    ridge on standardized columns: it sees shifts of means, and all splits share one factorization per fold. It does not change
    when columns are shifted or scaled.
    """
    members = indicators(windows.n, windows.m, spec.permutations if p_value else 0, windows.rng("permutations"))
    fold = np.arange(windows.n + windows.m) % spec.folds
    accuracies = balanced_accuracies(standardized(windows.pooled), members, windows.rng("folds").permutation(fold))
    return Score(float(accuracies[0]), float(permutation_p_value(accuracies)) if p_value else None)


def balanced_accuracies(samples: Float64, members: npt.NDArray[np.uint8], fold: npt.NDArray[np.int64]) -> Float64:
    """Mean of the shares recognized in either window, ``float64[P]``, of ``float64[N, d]``, ``uint8[N, P]`` and ``int64[N]``."""
    in_reference = members.astype(np.bool_)
    scores = np.zeros(members.shape)
    for number in range(int(fold.max()) + 1):
        held_out = fold == number
        if held_out.any() and not held_out.all():
            scores[held_out] = _discriminants(samples[~held_out], in_reference[~held_out], samples[held_out])
    # A sample on the boundary is half right.
    right = np.where(in_reference, (np.sign(scores) + 1) / 2, (1 - np.sign(scores)) / 2)
    reference = (right * in_reference).sum(axis=0) / in_reference.sum(axis=0)
    current = (right * ~in_reference).sum(axis=0) / (~in_reference).sum(axis=0)
    return np.asarray((reference + current) / 2)


def _discriminants(known: Float64, in_reference: npt.NDArray[np.bool_], asked: Float64) -> Float64:
    """Positive where ``asked`` looks like the reference, ``float64[len(asked), P]``, one discriminant per split."""
    centered = known - known.mean(axis=0)
    covariance = centered.T @ centered / len(known)
    strength = _RIDGE * float(np.trace(covariance)) / len(covariance) or 1.0
    counts = in_reference.sum(axis=0)
    sums = in_reference.T.astype(np.float64) @ known
    reference = sums / np.maximum(counts, 1)[:, None]
    current = (known.sum(axis=0) - sums) / np.maximum(len(known) - counts, 1)[:, None]
    directions = np.linalg.solve(covariance + strength * np.eye(len(covariance)), (reference - current).T)
    middles = ((reference + current) / 2 * directions.T).sum(axis=1)
    # A split that left one window no sample to learn from knows nothing.
    return np.asarray(np.where((counts > 0) & (counts < len(known)), asked @ directions - middles, 0.0))
