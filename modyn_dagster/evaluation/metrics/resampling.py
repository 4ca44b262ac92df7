"""Metrics of many resamples at once: the rows of each are one line of a table, and every step goes over the whole table.

What is needed of every sample is worked out once, not once per resample. A metric that is not here, such as one of a person's
own, is computed resample by resample.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.metrics import classification, ranking, regression
from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples
from modyn_dagster.evaluation.metrics.registry import MetricEntry, score_slice

Rows = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]


def resampled(entry: MetricEntry, judged: EvaluationSamples, rows: Rows) -> Float64:
    """A metric of every resample, ``float64[m]``, NaN where it is undefined; ``rows`` are those drawn, ``int64[m, n]``."""
    compute: Any = entry.compute
    function, given = (compute.func, compute.keywords) if isinstance(compute, partial) else (compute, {})
    odd = _odd(judged)
    # Where a sample is odd, a resample that misses it is another case than one that has it.
    if function not in _TOGETHER or odd:
        found = [_alone(entry, judged, each) for each in rows]
        return np.array([np.nan if value is None else value for value in found], dtype=np.float64)
    with np.errstate(all="ignore"):
        values = _TOGETHER[function](judged, rows, **given)
    return np.where(np.isfinite(values), values, np.nan)


def _alone(entry: MetricEntry, judged: EvaluationSamples, rows: npt.NDArray[np.int64]) -> float | None:
    drawn = EvaluationSamples(judged.outputs[rows], judged.truth[rows])
    return score_slice(entry, drawn, slice(0, len(rows)), 0, min_samples=1).value


def _odd(judged: EvaluationSamples) -> bool:
    """Whether outputs or targets are not finite, or a class is unknown."""
    if judged.broken[-1]:
        return True
    return not np.isfinite(judged.truth).all() if judged.truth.dtype.kind == "f" else bool(judged.beyond[-1])


def _mean(values: Float64, judged: EvaluationSamples, rows: Rows, positive: int | None = None) -> Float64:
    if positive is None:
        return np.asarray(values[rows].mean(axis=1))
    of_class = judged.truth == positive
    return np.asarray(np.where(of_class, values, 0.0)[rows].sum(axis=1) / of_class[rows].sum(axis=1))


def _accuracy(judged: EvaluationSamples, rows: Rows, k: int = 1, positive: int | None = None) -> Float64:
    return _mean(np.diff(judged.right(k)).astype(np.float64), judged, rows, positive)


def _log_loss(judged: EvaluationSamples, rows: Rows, positive: int | None = None) -> Float64:
    return _mean(judged.losses, judged, rows, positive)


def _brier(judged: EvaluationSamples, rows: Rows, positive: int | None = None) -> Float64:
    return _mean(judged.squares, judged, rows, positive)


def _calibration_error(judged: EvaluationSamples, rows: Rows) -> Float64:
    bins = np.minimum((judged.confidence * classification.BINS).astype(np.int64), classification.BINS - 1)
    gaps = _counted(bins[rows], classification.BINS, (judged.confidence - (judged.predicted == judged.truth))[rows])
    return np.asarray(np.abs(gaps).sum(axis=1) / rows.shape[1])


def _f1(judged: EvaluationSamples, rows: Rows, average: str | None = None, positive: int | None = None) -> Float64:
    k, drawn = judged.n_classes, _counted(rows, len(judged))
    actual = _by_class(drawn, judged.truth, k)
    seen = _by_class(drawn, judged.predicted, k) + actual
    hits = _by_class(drawn * (judged.predicted == judged.truth), judged.truth, k)
    if positive is None and average is None and k == 2:
        positive = 1
    if positive is not None:
        return np.asarray(2 * hits[:, positive] / seen[:, positive]) if positive < k else np.full(len(rows), np.nan)
    if average == "micro":
        return np.asarray(hits.sum(axis=1) / actual.sum(axis=1))
    each = np.where(seen > 0, 2 * hits / np.maximum(seen, 1), 0.0)
    weights = actual if average == "weighted" else (seen > 0).astype(np.float64)
    return np.asarray((each * weights).sum(axis=1) / weights.sum(axis=1))


def _roc_auc(judged: EvaluationSamples, rows: Rows, positive: int | None = None) -> Float64:
    def area(positives: Float64, samples: Float64) -> Float64:
        negatives = samples - positives
        below = np.cumsum(negatives, axis=1) - negatives
        pairs = positives.sum(axis=1) * negatives.sum(axis=1)
        return np.asarray((positives * (2 * below + negatives)).sum(axis=1) / (2 * pairs))

    return _over_classes(area, judged, rows, positive)


def _pr_auc(judged: EvaluationSamples, rows: Rows, positive: int | None = None) -> Float64:
    def area(positives: Float64, samples: Float64) -> Float64:
        found, taken = (np.cumsum(each[:, ::-1], axis=1) for each in (positives, samples))
        values = (positives[:, ::-1] * (found / np.maximum(taken, 1))).sum(axis=1) / found[:, -1]
        return np.where(found[:, -1] < taken[:, -1], values, np.nan)

    return _over_classes(area, judged, rows, positive)


def _over_classes(
    area: Callable[[Float64, Float64], Float64], judged: EvaluationSamples, rows: Rows, positive: int | None
) -> Float64:
    """Mean over the classes that occur, of ``area`` of positives and of all samples at every distinct rank, ``[m, ranks]``."""
    drawn = _counted(rows, len(judged))
    if positive is None and judged.n_classes == 2:
        positive = 1
    classes = np.unique(judged.truth).tolist() if positive is None else [positive]
    total, occur = np.zeros(len(rows)), np.zeros(len(rows))
    for label in classes:
        if not 0 <= label < judged.n_classes:
            return np.full(len(rows), np.nan)
        order, ranks = judged.ranking(label)
        starts = np.flatnonzero(np.diff(ranks[order], prepend=-1))
        samples = drawn[:, order]
        positives = samples * (judged.truth[order] == label)
        value = area(_summed(positives, starts), _summed(samples, starts))
        known = np.isfinite(value)
        total, occur = total + np.where(known, value, 0.0), occur + known
    return np.asarray(total / occur)


def _mae(judged: EvaluationSamples, rows: Rows) -> Float64:
    return np.asarray(np.abs(judged.outputs[:, 0] - judged.truth)[rows].mean(axis=1))


def _mse(judged: EvaluationSamples, rows: Rows) -> Float64:
    return np.asarray(np.square(judged.outputs[:, 0] - judged.truth)[rows].mean(axis=1))


def _r2(judged: EvaluationSamples, rows: Rows) -> Float64:
    truth = judged.truth[rows]
    spread = np.square(truth - truth.mean(axis=1, keepdims=True)).sum(axis=1)
    missed = np.square(judged.outputs[:, 0] - judged.truth)[rows].sum(axis=1)
    return np.where(truth.min(axis=1) == truth.max(axis=1), np.nan, 1 - missed / spread)


def _by_class(drawn: Float64, classes: Rows, k: int) -> Float64:
    """How many of the samples of each class were drawn, ``float64[m, k]``."""
    order = np.argsort(classes, kind="stable")
    starts = np.flatnonzero(np.diff(classes[order], prepend=-1))
    found = np.zeros((len(drawn), k))
    found[:, classes[order[starts]]] = _summed(drawn[:, order], starts)
    return found


def _summed(values: Float64, starts: Rows) -> Float64:
    """Sums of neighbouring columns, from each start to the next."""
    return values if len(starts) == values.shape[1] else np.asarray(np.add.reduceat(values, starts, axis=1))


def _counted(values: Rows, n: int, weights: Float64 | None = None) -> Float64:
    """How often each of ``0 .. n - 1`` stands in every line, or the sum of its weights, ``float64[m, n]``."""
    places = values + np.arange(len(values))[:, None] * n
    flat = None if weights is None else weights.ravel()
    return np.bincount(places.ravel(), flat, minlength=len(values) * n).reshape(len(values), n).astype(np.float64)


_TOGETHER: Final[Mapping[Callable[..., Any], Callable[..., Float64]]] = {
    classification.accuracy: _accuracy,
    classification.log_loss: _log_loss,
    classification.brier: _brier,
    classification.calibration_error: _calibration_error,
    classification.f1: _f1,
    ranking.roc_auc: _roc_auc,
    ranking.pr_auc: _pr_auc,
    regression.mae: _mae,
    regression.mse: _mse,
    regression.r2: _r2,
}
