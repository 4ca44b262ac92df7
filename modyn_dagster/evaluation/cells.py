"""Cells of the evaluation matrix: one model on every interval, from its stored predictions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.confidence import ConfidenceInterval, confidence_interval, is_share, wilson
from modyn_dagster.evaluation.intervals import Interval
from modyn_dagster.evaluation.judged import Judged
from modyn_dagster.evaluation.metrics import Score, find_metric, is_labelled, score_part
from modyn_dagster.evaluation.predictions import Predictions
from modyn_dagster.evaluation.together import values_together

Cell = dict[str, Score]


def score_intervals(
    predictions: Predictions, intervals: Sequence[Interval], metrics: Sequence[str], *, min_samples: int = 1
) -> list[Cell]:
    """Every metric on every interval, in the order of the intervals.

    Samples count by their time, wherever in the stream they stand; within an interval they are taken in order of time, then
    key, so that equal predictions give equal bits, whatever other intervals are asked for. Times are ``datetime64``.
    """
    ordered = in_order(predictions)
    times, truth = ordered.times, ordered.truth
    labelled = is_labelled(truth)
    parts = _parts(times[labelled], intervals)
    n_all = [part.stop - part.start for part in _parts(times, intervals)]
    judged = Judged(ordered.outputs, truth) if labelled.all() else Judged(ordered.outputs[labelled], truth[labelled])
    n_unlabelled = [n - (part.stop - part.start) for part, n in zip(parts, n_all, strict=True)]
    usable = [
        part.stop - part.start >= max(1, min_samples) and judged.broken[part.stop] == judged.broken[part.start] for part in parts
    ]
    cells: list[Cell] = [{} for _ in parts]
    for metric in metrics:
        entry, together = find_metric(metric), values_together(metric, judged, parts, usable)
        for number, (part, missing) in enumerate(zip(parts, n_unlabelled, strict=True)):
            cells[number][metric] = (
                Score(together[number], part.stop - part.start, None, missing)
                if number in together
                else score_part(entry, judged, part, missing, min_samples=min_samples)
            )
    return cells


def cell_confidence(
    predictions: Predictions, intervals: Sequence[Interval], cells: Sequence[Cell], *, level: float, resamples: int
) -> list[dict[str, ConfidenceInterval]]:
    """The confidence interval of every defined score that has one; ``cells`` are those of the intervals, in the same order.

    Without ``resamples`` only shares have one. Equal samples give equal ends, in whatever order they come.
    """
    ordered, found = in_order(predictions), []
    for part, cell in zip(_parts(ordered.times, intervals), cells, strict=True):
        ends: dict[str, ConfidenceInterval | None] = {}
        for metric, score in cell.items():
            if score.value is None or not (resamples or is_share(metric)):
                continue
            if is_share(metric) and "_class_" not in metric:
                ends[metric] = wilson(round(score.value * score.n), score.n, level)
            else:
                outputs, truth = ordered.outputs[part], ordered.truth[part]
                ends[metric] = confidence_interval(metric, outputs, truth, level=level, resamples=resamples)
        found.append({metric: each for metric, each in ends.items() if each is not None})
    return found


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


def in_order(predictions: Predictions) -> Predictions:
    """The same by time, then key; most streams already are."""
    keys, times = predictions.keys, predictions.times
    sorted_already = (times[1:] > times[:-1]) | ((times[1:] == times[:-1]) & (keys[1:] > keys[:-1]))
    return predictions if sorted_already.all() else predictions.take(np.lexsort((keys, times)))


def _parts(times: npt.NDArray[np.datetime64], intervals: Sequence[Interval]) -> list[slice]:
    starts = np.searchsorted(times, np.array([i.start for i in intervals], dtype="datetime64[us]"), side="left")
    ends = np.searchsorted(times, np.array([i.end for i in intervals], dtype="datetime64[us]"), side="left")
    return [slice(int(start), int(max(start, end))) for start, end in zip(starts, ends, strict=True)]
