"""Metrics of several labels per sample: one kernel each. A label is predicted where its logit is above 0."""

from functools import partial

import numpy as np

from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples, Flags
from modyn_dagster.evaluation.metrics.groups import Groups, quotients
from modyn_dagster.evaluation.metrics.losses import Float64


def subset_accuracy(groups: Groups) -> Float64:
    """Share of samples all of whose labels are right.

    Args:
        groups: slices or resamples of samples with labels ``[n, labels]``.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> subset_accuracy(Slices.whole([[1, -1], [1, 1]], [[1.0, 0.0], [0.0, 1.0]]))
    array([0.5])
    """
    return groups.sums(groups.samples.derived("whole subsets", _whole)) / groups.sizes


def hamming_loss(groups: Groups) -> Float64:
    """Share of labels that are wrong, over samples and labels.

    Args:
        groups: slices or resamples of samples with labels ``[n, labels]``.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> hamming_loss(Slices.whole([[1, -1], [1, 1]], [[1.0, 0.0], [0.0, 1.0]]))
    array([0.25])
    """
    # Whole numbers until the end: slices have the same bits alone and together.
    return groups.sums(groups.samples.derived("wrong labels", _wrong)) / (groups.sizes * groups.samples.n_classes)


def label_f1_micro(groups: Groups) -> Float64:
    """Harmonic mean of precision and recall over all decisions on labels; 0 where no label occurs or is predicted.

    Args:
        groups: slices or resamples of samples with labels ``[n, labels]``.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> label_f1_micro(Slices.whole([[1, -1], [1, 1]], [[1.0, 0.0], [0.0, 1.0]]))
    array([0.8])
    """
    correct, occurrences = _counts(groups)
    return quotients(2 * correct.sum(axis=1), occurrences.sum(axis=1), of_none=0.0)


def label_f1_macro(groups: Groups) -> Float64:
    """Mean over the labels of the harmonic mean of precision and recall; 0 for one that neither occurs nor is predicted.

    Args:
        groups: slices or resamples of samples with labels ``[n, labels]``.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> label_f1_macro(Slices.whole([[1, -1], [1, 1]], [[1.0, 0.0], [0.0, 1.0]])).round(3)
    array([0.833])
    """
    correct, occurrences = _counts(groups)
    return np.asarray(quotients(2 * correct, occurrences, of_none=0.0).mean(axis=1))


def _predicted(samples: EvaluationSamples) -> Flags:
    return np.asarray(samples.outputs > 0)


def _whole(samples: EvaluationSamples) -> Float64:
    return np.asarray((_predicted(samples) == samples.truth).all(axis=1), np.float64)


def _wrong(samples: EvaluationSamples) -> Float64:
    return np.asarray((_predicted(samples) != samples.truth).sum(axis=1), np.float64)


def _counts(groups: Groups) -> tuple[Float64, Float64]:
    """Right positive decisions, and positive decisions plus positive labels, of every group and label, ``[m, labels]`` each."""
    samples = groups.samples
    correct, occurrences = [], []
    for place in range(samples.n_classes):
        correct.append(groups.sums(samples.derived(("right label", place), partial(_right, place))))
        occurrences.append(groups.sums(samples.derived(("occurrences", place), partial(_occurrences, place))))
    return np.stack(correct, axis=1), np.stack(occurrences, axis=1)


def _right(place: int, samples: EvaluationSamples) -> Float64:
    return np.asarray((samples.outputs[:, place] > 0) & (samples.truth[:, place] == 1), np.float64)


def _occurrences(place: int, samples: EvaluationSamples) -> Float64:
    return np.asarray((samples.outputs[:, place] > 0) + samples.truth[:, place], np.float64)
