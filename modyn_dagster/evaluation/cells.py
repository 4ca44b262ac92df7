"""Cells of the evaluation matrix: one model on every interval, from its stored predictions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.intervals import Interval
from modyn_dagster.evaluation.judged import Judged
from modyn_dagster.evaluation.metrics import Score, find_metric, is_labelled, score_part
from modyn_dagster.evaluation.predictions import Predictions

Cell = dict[str, Score]


def score_intervals(
    predictions: Predictions, intervals: Sequence[Interval], metrics: Sequence[str], *, min_samples: int = 1
) -> list[Cell]:
    """Every metric on every interval, in the order of the intervals.

    Samples count by their time, wherever in the stream they stand; within an interval they are taken in order of time, then
    key, so that equal predictions give equal bits, whatever other intervals are asked for. Times are ``datetime64``.
    """
    order = np.lexsort((predictions.keys, predictions.times))
    times, truth = predictions.times[order], predictions.truth[order]
    labelled = is_labelled(truth)
    parts = _parts(times[labelled], intervals)
    n_all = [part.stop - part.start for part in _parts(times, intervals)]
    judged = Judged(predictions.outputs[order[labelled]], truth[labelled])
    entries = {metric: find_metric(metric) for metric in metrics}
    return [
        {
            metric: score_part(entry, judged, part, n - (part.stop - part.start), min_samples=min_samples)
            for metric, entry in entries.items()
        }
        for part, n in zip(parts, n_all, strict=True)
    ]


def score_slices(
    predictions: Predictions,
    groups: npt.NDArray[Any],
    intervals: Sequence[Interval],
    metrics: Sequence[str],
    *,
    min_samples: int = 1,
) -> Mapping[Any, list[Cell]]:
    """The same apart for every value of an attribute, or of the label: ``groups`` names one per prediction, ``[n]``."""
    if len(groups) != len(predictions):
        raise ValueError(f"groups: {len(groups)} values for {len(predictions)} predictions")
    return {
        group: score_intervals(predictions.take(np.flatnonzero(groups == group)), intervals, metrics, min_samples=min_samples)
        for group in np.unique(groups).tolist()
    }


def _parts(times: npt.NDArray[np.datetime64], intervals: Sequence[Interval]) -> list[slice]:
    starts = np.searchsorted(times, np.array([i.start for i in intervals], dtype="datetime64[us]"), side="left")
    ends = np.searchsorted(times, np.array([i.end for i in intervals], dtype="datetime64[us]"), side="left")
    return [slice(int(start), int(max(start, end))) for start, end in zip(starts, ends, strict=True)]
