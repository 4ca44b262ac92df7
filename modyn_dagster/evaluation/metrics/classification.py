"""Metrics of classifiers on a slice of judged samples: a number, or the reason why there is none."""

from typing import Final

import numpy as np

from modyn_dagster.evaluation.metrics.evaluation_samples import Counts, EvaluationSamples, require_known

#: Of the calibration error, of equal width.
BINS: Final = 15


def accuracy(judged: EvaluationSamples, part: slice, k: int = 1, positive: int | None = None) -> float | str:
    """Share of samples whose class is among the k largest outputs; with ``positive``: of the samples of that class."""
    if positive is None:
        before = judged.right(k)
        return float((before[part.stop] - before[part.start]) / (part.stop - part.start))
    of_class = judged.truth[part] == positive
    right = np.diff(judged.right(k)[part.start : part.stop + 1])[of_class]
    return float(right.mean()) if len(right) else f"no sample is of class {positive}"


def log_loss(judged: EvaluationSamples, part: slice, positive: int | None = None) -> float | str:
    """Mean of ``-log p(class)``."""
    require_known(judged, part)
    return _mean(judged, judged.losses, part, positive)


def brier(judged: EvaluationSamples, part: slice, positive: int | None = None) -> float | str:
    """Mean squared distance of the probabilities from the truth: of class 1 where there are two, else over all classes."""
    require_known(judged, part)
    return _mean(judged, judged.squares, part, positive)


def calibration_error(judged: EvaluationSamples, part: slice) -> float:
    """Expected calibration error (Guo et al., 2017): mean distance of confidence and accuracy over 15 bins of confidence."""
    confidence, right = judged.confidence[part], judged.predicted[part] == judged.truth[part]
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, weights=confidence - right, minlength=BINS)
    return float(np.abs(gaps).sum() / len(right))


def f1(judged: EvaluationSamples, part: slice, average: str | None = None, positive: int | None = None) -> float | str:
    """Of class 1 where there are two classes, else the mean over classes that occur in the truth or the predictions.

    ``average`` chooses: ``macro`` that mean, ``weighted`` one weighted by the samples of each class, ``micro`` over all
    decisions together, which is the accuracy; ``positive`` a single class.
    """
    hits, predicted, actual = _confusion(judged, part)
    seen = predicted + actual
    if positive is None and average is None and len(seen) == 2:
        positive = 1
    if positive is not None:
        known = positive < len(seen) and seen[positive] > 0
        return float(2 * hits[positive] / seen[positive]) if known else f"neither a sample nor a prediction of class {positive}"
    if average == "micro":
        return float(hits.sum() / actual.sum())
    each, weights = 2 * hits[seen > 0] / seen[seen > 0], actual[seen > 0]
    return float(np.average(each, weights=weights) if average == "weighted" else np.mean(each))


def _mean(
    judged: EvaluationSamples, values: np.ndarray[tuple[int], np.dtype[np.float64]], part: slice, positive: int | None
) -> float | str:
    chosen = values[part] if positive is None else values[part][judged.truth[part] == positive]
    # Not its own mean: numpy adds slices up in another order when it is asked for many of them at once.
    return float(np.add.reduceat(chosen, [0])[0] / len(chosen)) if len(chosen) else f"no sample is of class {positive}"


def _confusion(judged: EvaluationSamples, part: slice) -> tuple[Counts, Counts, Counts]:
    """Right predictions, predictions and samples by class."""
    predicted, truth = judged.predicted[part], judged.truth[part]
    n_classes = max(judged.n_classes, int(truth.max()) + 1)
    hits = np.bincount(predicted[predicted == truth], minlength=n_classes)
    return hits, np.bincount(predicted, minlength=n_classes), np.bincount(truth, minlength=n_classes)
