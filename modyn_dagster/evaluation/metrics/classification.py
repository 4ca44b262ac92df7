"""Metrics of classifiers: one kernel each, and the checks that say why a slice has no value."""

import numpy as np

from modyn_dagster.evaluation.metrics.evaluation_samples import BINS, EvaluationSamples, Flags, UndefinedScore, require_known
from modyn_dagster.evaluation.metrics.groups import Groups, count_rowwise
from modyn_dagster.evaluation.metrics.losses import Float64


def accuracy(groups: Groups, k: int = 1, positive: int | None = None) -> Float64:
    """Share of samples whose class is among the k largest outputs.

    Args:
        groups: slices or resamples of classified samples.
        k: outputs to look at (``accuracy_top5``); among equal outputs the lower class comes first.
        positive: only samples of this class count (``accuracy_class_2``), which makes it their recall.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> accuracy(Slices.whole([[2, 1], [0, 1], [3, 0], [0, 2]], [0, 1, 1, 1]))
    array([0.75])
    """
    correct = groups.samples.correct(k)
    if positive is None:
        return groups.counts(correct) / groups.sizes
    actual = groups.samples.truth == positive
    return groups.counts(correct & actual) / groups.counts(actual)


def log_loss(groups: Groups, positive: int | None = None) -> Float64:
    """Mean of ``-log p(class)``, the cross-entropy.

    Args:
        groups: slices or resamples of classified samples.
        positive: only samples of this class count.

    Source: I. J. Good, Rational Decisions, 1952.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> log_loss(Slices.whole([[0, 0], [0, 0], [1, 1], [2, 2]], [0, 1, 1, 1])).round(3)
    array([0.693])
    """
    return _mean(groups, groups.samples.losses, positive)


def brier(groups: Groups, positive: int | None = None) -> Float64:
    """Mean squared distance of the probabilities from the truth: of class 1 for two classes, else over all classes.

    Args:
        groups: slices or resamples of classified samples.
        positive: only samples of this class count.

    Source: G. W. Brier, Verification of Forecasts Expressed in Terms of Probability, 1950.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> brier(Slices.whole([[0, 0], [0, 0], [1, 1], [2, 2]], [0, 1, 1, 1]))
    array([0.25])
    """
    return _mean(groups, groups.samples.squares, positive)


def calibration_error(groups: Groups) -> Float64:
    """Expected calibration error: mean distance of confidence and accuracy over 15 bins of confidence of equal width.

    Args:
        groups: slices or resamples of classified samples.

    Source: C. Guo et al., On Calibration of Modern Neural Networks, 2017.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> calibration_error(Slices.whole([[0, 0], [0, 0], [1, 1], [2, 2]], [0, 1, 0, 0]))
    array([0.25])
    """
    return groups.rowwise(_mean_gap, groups.samples.confidence_bins, groups.samples.overconfidence)


def f1(groups: Groups, average: str | None = None, positive: int | None = None) -> Float64:
    """Harmonic mean of precision and recall.

    By default that of class 1 for two classes, else the mean over the classes that occur in truth or predictions.

    Args:
        groups: slices or resamples of classified samples.
        average: ``macro`` that mean; ``weighted`` one weighted by the samples of each class; ``micro`` over all decisions
            together, which is the accuracy.
        positive: a single class.

    Source: C. J. van Rijsbergen, Information Retrieval, 1979; averages as in scikit-learn.

    >>> from modyn_dagster.evaluation.metrics.groups import Slices
    >>> f1(Slices.whole([[2, 1], [0, 1], [3, 0], [0, 2]], [0, 1, 1, 1]))
    array([0.8])
    """
    samples, positive = groups.samples, _f1_class(groups.n_classes, average, positive)
    if positive is not None:
        predicted, actual = samples.predicted == positive, samples.truth == positive
        return 2 * groups.counts(predicted & actual) / (groups.counts(predicted) + groups.counts(actual))
    correct, predictions, actuals = groups.class_counts()
    if average == "micro":
        return np.asarray(correct.sum(axis=1) / actuals.sum(axis=1))
    occurrences = predictions + actuals
    scores = np.where(occurrences > 0, 2 * correct / np.maximum(occurrences, 1), 0.0)
    weights = actuals if average == "weighted" else (occurrences > 0).astype(np.float64)
    return np.asarray((scores * weights).sum(axis=1) / weights.sum(axis=1))


def check_class(samples: EvaluationSamples, part: slice, positive: int | None = None, **_k: int) -> None:
    """Raise ``UndefinedScore`` where the one class that counts is absent."""
    if positive is not None and not (samples.truth[part] == positive).any():
        raise UndefinedScore(f"no sample is of class {positive}")


def check_probabilities(samples: EvaluationSamples, part: slice, positive: int | None = None) -> None:
    """Raise ``CellFailed`` for a class unknown to the model, ``UndefinedScore`` where the one class that counts is absent."""
    require_known(samples, part)
    check_class(samples, part, positive=positive)


def check_f1(samples: EvaluationSamples, part: slice, average: str | None = None, positive: int | None = None) -> None:
    """Raise ``UndefinedScore`` where the one class that counts neither occurs nor is predicted."""
    positive = _f1_class(samples.classes_in(part), average, positive)
    if positive is not None and not ((samples.truth[part] == positive) | (samples.predicted[part] == positive)).any():
        raise UndefinedScore(f"neither a sample nor a prediction of class {positive}")


def _f1_class(n_classes: int, average: str | None, positive: int | None) -> int | None:
    """The one class that counts, if it is one."""
    return 1 if positive is None and average is None and n_classes == 2 else positive


def _mean(groups: Groups, values: Float64, positive: int | None) -> Float64:
    if positive is None:
        return groups.sums(values) / groups.sizes
    actual: Flags = groups.samples.truth == positive
    return groups.sums(values, actual) / groups.counts(actual)


def _mean_gap(bins: "np.ndarray[tuple[int, int], np.dtype[np.int64]]", overconfidence: Float64) -> Float64:
    return np.asarray(np.abs(count_rowwise(bins, BINS, overconfidence)).sum(axis=1) / bins.shape[1])
