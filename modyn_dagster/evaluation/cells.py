"""Cells of the evaluation matrix: scores of one model on every interval, their confidence intervals and addresses.

The address of a cell is a digest of everything its value depends on: cells with equal addresses have equal values.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.intervals.generation import Interval
from modyn_dagster.evaluation.metrics.confidence import ConfidenceInterval, confidence_interval, is_share, wilson
from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples
from modyn_dagster.evaluation.metrics.registry import Score, find_metric, is_labelled, score_parts
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.keys import ordinals_of
from modyn_dagster.values.digest import framed_digest

Cell = dict[str, Score]


def score_intervals(
    predictions: Predictions, intervals: Sequence[Interval], metrics: Sequence[str], *, min_samples: int = 1
) -> list[Cell]:
    """Score every metric on every interval, in the order of the intervals.

    A sample belongs to an interval by its time, not by its place in the stream. Within an interval samples are sorted by time,
    then key: equal predictions give equal bits, with any other intervals beside them.

    Args:
        predictions: of one model, in any order.
        intervals: of ``datetime64`` times; may overlap.
        metrics: names of ``METRICS`` or import paths.
        min_samples: fewer labelled samples have no score.

    >>> times = np.array([0, 5], "datetime64[us]")
    >>> outputs, no_loss = np.array([[0.0, 1.0], [1.0, 0.0]], np.float32), np.zeros(2, np.float32)
    >>> stream = Predictions("class", np.arange(2, dtype=np.uint64), times, np.array([1, 1]), outputs, no_loss)
    >>> [cell["accuracy"].value for cell in score_intervals(stream, [Interval(t, t + 1, t) for t in times], ["accuracy"])]
    [1.0, 0.0]
    """
    ordered = _within(by_time(predictions), intervals)
    times, truth = ordered.times, ordered.truth
    labelled = is_labelled(truth)
    n_samples = [part.stop - part.start for part in interval_rows(times, intervals)]
    if labelled.all():
        samples = EvaluationSamples(ordered.outputs, truth)
    else:
        times, samples = times[labelled], EvaluationSamples(ordered.outputs[labelled], truth[labelled])
    parts = interval_rows(times, intervals)
    n_unlabelled = [n - (part.stop - part.start) for part, n in zip(parts, n_samples, strict=True)]
    scores = [score_parts(find_metric(metric), samples, parts, n_unlabelled, min_samples=min_samples) for metric in metrics]
    return [dict(zip(metrics, cell, strict=True)) for cell in zip(*scores, strict=True)] if scores else [{} for _ in parts]


def cell_confidence(
    predictions: Predictions, intervals: Sequence[Interval], cells: Sequence[Cell], *, level: float, resamples: int
) -> list[dict[str, ConfidenceInterval]]:
    """Confidence interval of every defined score that has one.

    Equal samples give equal ends, in any order of the predictions.

    Args:
        predictions: of the scored model.
        intervals: of the cells.
        cells: one per interval, in the same order.
        level: share of cases in which the confidence interval holds the true value.
        resamples: of the bootstrap; 0: only shares have a confidence interval.
    """
    ordered, confidences = by_time(predictions), []
    for part, cell in zip(interval_rows(ordered.times, intervals), cells, strict=True):
        ends: dict[str, ConfidenceInterval | None] = {}
        for metric, score in cell.items():
            if score.value is None or not (resamples or is_share(metric)):
                continue
            if is_share(metric) and "_class_" not in metric:
                ends[metric] = wilson(round(score.value * score.n), score.n, level)
            else:
                outputs, truth = ordered.outputs[part], ordered.truth[part]
                ends[metric] = confidence_interval(metric, outputs, truth, level=level, resamples=resamples)
        confidences.append({metric: interval for metric, interval in ends.items() if interval is not None})
    return confidences


def score_slices(
    predictions: Predictions,
    groups: npt.NDArray[Any],
    intervals: Sequence[Interval],
    metrics: Sequence[str],
    *,
    min_samples: int = 1,
) -> Mapping[Any, list[Cell]]:
    """Score the samples of every value of an attribute, or of the label, apart.

    Args:
        predictions: of one model.
        groups: value of each prediction, ``[n]``.
        intervals, metrics, min_samples: as in ``score_intervals``.
    """
    if len(groups) != len(predictions):
        raise ValueError(f"groups: {len(groups)} values for {len(predictions)} predictions")
    values, codes, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    rows = np.split(np.argsort(codes, kind="stable"), np.cumsum(sizes)[:-1])
    return {
        value: score_intervals(predictions.take(chosen), intervals, metrics, min_samples=min_samples)
        for value, chosen in zip(values.tolist(), rows, strict=False)
    }


def by_time(predictions: Predictions) -> Predictions:
    """Predictions sorted by time, then key; most streams already are."""
    keys, times = predictions.keys, predictions.times
    sorted_already = (times[1:] > times[:-1]) | ((times[1:] == times[:-1]) & (keys[1:] > keys[:-1]))
    return predictions if sorted_already.all() else predictions.take(np.lexsort((keys, times)))


def _within(ordered: Predictions, intervals: Sequence[Interval]) -> Predictions:
    """Leave out sorted predictions before the first interval and after the last: metrics sort what they are given."""
    parts = interval_rows(ordered.times, intervals)
    if not parts:
        return ordered
    return ordered.take(slice(min(part.start for part in parts), max(part.stop for part in parts)))


def interval_rows(times: npt.NDArray[np.datetime64], intervals: Sequence[Interval]) -> list[slice]:
    """Rows of each interval, of ascending times ``datetime64[us][n]``."""
    starts, ends = (
        np.searchsorted(times, np.array([getattr(interval, side) for interval in intervals], dtype="datetime64[us]"))
        for side in ("start", "end")
    )
    return [slice(int(start), int(max(start, end))) for start, end in zip(starts, ends, strict=True)]


def data_versions(
    predictions: Predictions, intervals: Sequence[Interval], dataset: str, contents: Mapping[int, str | None]
) -> list[str]:
    """Digest of the keys, times and truth of the samples in each interval.

    An added or deleted sample or another label changes the version. The order of the predictions and the samples of other
    intervals do not.

    Args:
        predictions: of the samples; the outputs do not count.
        intervals: of ``datetime64`` times.
        dataset: name; keys of two datasets may be equal.
        contents: digest of each ingested batch, by ordinal.
    """
    ordered = by_time(predictions)
    keys, times, truth = ordered.keys, ordered.times, ordered.truth
    ordinals = ordinals_of(keys)
    versions = []
    for part in interval_rows(times, intervals):
        batches = [f"{ordinal} {contents.get(ordinal)}" for ordinal in np.unique(ordinals[part]).tolist()]
        versions.append(_digest([dataset, *batches], keys[part], times[part].view(np.int64), truth[part]))
    return versions


def cell_address(
    model: str, interval: Interval, metric: str, data: str, settings: Sequence[object] = (), *, code: str = ""
) -> str:
    """Address of one cell: 32 hexadecimal digits, followed by a dot and ``code`` if there is one.

    Args:
        model: hash of the predictor: its weights and their use.
        interval: only its ends count, not its anchor.
        metric: a name of ``METRICS`` or an import path.
        data: version of the samples (``data_versions``).
        settings: everything else the value depends on, for example the minimum number of samples.
        code: digest of the metric's code (``metric_code``), which ``code_of`` reads off the address.
    """
    address = _digest([model, str(interval.start), str(interval.end), metric, data, *map(repr, settings)])
    return f"{address}.{code}" if code else address


def code_of(address: str) -> str:
    """Digest of the code of the metric that computed a cell; empty for metrics of ``METRICS``."""
    return address.partition(".")[2]


def _digest(texts: Sequence[str], *arrays: npt.NDArray[np.generic]) -> str:
    return framed_digest((text.encode() for text in texts), *arrays)
