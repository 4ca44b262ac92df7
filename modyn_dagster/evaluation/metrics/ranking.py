"""Metrics of the order that a class's probability gives the samples: one kernel each, from ranks computed once per model."""

from collections.abc import Callable
from functools import partial

import numpy as np

from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples, UndefinedScore, require_known
from modyn_dagster.evaluation.metrics.groups import Groups
from modyn_dagster.evaluation.metrics.losses import Float64


def roc_auc(groups: Groups, positive: int | None = None) -> Float64:
    """Area under the ROC curve: probability that a sample of the class ranks above another one, ties counting half.

    By default that of class 1 against 0 for two classes, else the mean over the classes that occur, each against the rest.

    Args:
        groups: slices or resamples of classified samples.
        positive: a single class against the rest (``roc_auc_class_3``).

    Source: H. B. Mann, D. R. Whitney, On a Test of Whether one of Two Random Variables is Stochastically Larger, 1947.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> roc_auc(Slices.whole([[0, 1], [0, 2], [0, 3], [0, 4]], [0, 1, 0, 1]))
    array([0.75])
    """
    return _over_classes(_roc_area, groups, positive)


def pr_auc(groups: Groups, positive: int | None = None) -> Float64:
    """Average precision: the sum over thresholds of precision times gain in recall.

    Args:
        groups: slices or resamples of classified samples.
        positive: a single class against the rest; by default classes as in ``roc_auc``.

    Source: scikit-learn's ``average_precision_score``; J. Davis, M. Goadrich, The Relationship Between Precision-Recall and ROC
    Curves, 2006, on why it does not interpolate.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> pr_auc(Slices.whole([[0, 1], [0, 2], [0, 3], [0, 4]], [0, 1, 0, 1])).round(3)
    array([0.833])
    """
    return _over_classes(_average_precision, groups, positive)


def check_ranking(samples: EvaluationSamples, part: slice, positive: int | None = None) -> None:
    """Raise ``UndefinedScore`` where one class has all samples or the class is absent, ``CellFailed`` for an unknown class."""
    classes = np.flatnonzero(np.bincount(samples.truth[part]))
    if len(classes) < 2:
        raise UndefinedScore(f"all samples are of class {classes[0]}")
    require_known(samples, part)
    if positive is not None and positive not in classes:
        raise UndefinedScore(f"no sample is of class {positive}")


def _over_classes(area: Callable[[Groups, int], Float64], groups: Groups, positive: int | None) -> Float64:
    if positive is None and groups.samples.n_classes != 2:
        return groups.mean_over_classes(partial(area, groups))
    label = 1 if positive is None else positive
    return area(groups, label) if label < groups.samples.n_classes else np.full(len(groups.sizes), np.nan)


def _roc_area(groups: Groups, label: int) -> Float64:
    doubled, positives, negatives = groups.ordered_pairs(label)
    return np.asarray(doubled / (2 * positives * negatives))


def _average_precision(groups: Groups, label: int) -> Float64:
    counts = groups.rank_counts(label)
    # From the highest rank down: samples of the class among all samples above each threshold.
    positives, taken = (np.cumsum(count[:, ::-1], axis=1) for count in counts)
    precision = positives / np.maximum(taken, 1)
    areas = (counts.positives[:, ::-1] * precision).sum(axis=1) / positives[:, -1]
    return np.where(positives[:, -1] < taken[:, -1], areas, np.nan)
