"""Cells of the evaluation matrix: one model on every interval, from its stored predictions."""

from collections.abc import Sequence

import numpy as np

from modyn_dagster.evaluation.intervals import Interval
from modyn_dagster.evaluation.metrics import Score, score
from modyn_dagster.evaluation.predictions import Predictions
from modyn_dagster.spec.evaluation import MetricName


def score_intervals(
    predictions: Predictions, intervals: Sequence[Interval], metrics: Sequence[MetricName], *, min_samples: int = 1
) -> list[dict[MetricName, Score]]:
    """Every metric on every interval, in the order of the intervals.

    Samples count by their time, wherever in the stream they stand; within an interval they are taken in order of time, then
    key, so that equal predictions give equal bits. Times of the intervals are ``datetime64``.
    """
    order = np.lexsort((predictions.keys, predictions.times))
    ordered = predictions.take(order)
    starts = np.searchsorted(ordered.times, np.array([i.start for i in intervals], dtype="datetime64[us]"), side="left")
    ends = np.searchsorted(ordered.times, np.array([i.end for i in intervals], dtype="datetime64[us]"), side="left")
    cells = []
    for start, end in zip(starts, ends, strict=True):
        part = slice(start, max(start, end))
        outputs, truth = ordered.outputs[part], ordered.truth[part]
        cells.append({metric: score(metric, outputs, truth, min_samples=min_samples) for metric in metrics})
    return cells
