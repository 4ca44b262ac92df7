"""Cells of the evaluation matrix: one model on the closed intervals, from its stored predictions."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.evaluations import list_evaluations, list_predictions, record_evaluations
from modyn_dagster.catalog.models import ModelRow
from modyn_dagster.catalog.moments import as_timestamp
from modyn_dagster.evaluation.cells import score_intervals
from modyn_dagster.evaluation.intervals import Interval
from modyn_dagster.evaluation.metrics import Score
from modyn_dagster.evaluation.predictions import Predictions, read_predictions
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.view import DatasetView
from modyn_dagster.pipeline.wanted import run_intervals

Place = tuple[datetime, datetime]
#: Samples of an interval that are judged, and that were deleted.
Counts = tuple[int, int]


def score_closed_intervals(context: TriggerContext, model: ModelRow, *, finished: bool) -> int:
    """Score the closed intervals that have no cell yet, or whose samples have become more or fewer; returns how many cells.

    Deleted samples do not count, also where they were predicted before.
    """
    with context.platform.transaction() as conn:
        cells = list_evaluations(conn, context.run.id, context.trigger.id)
        files = [file for file in list_predictions(conn, context.trigger.id) if file.removed_at is None]
    if not files:
        return 0
    predicted = Predictions.concat([read_predictions(context.platform.home / f.path, f.checksum) for f in files])
    predictions = predicted.take(np.flatnonzero(~context.view.deleted.among(predicted.keys)))
    intervals = run_intervals(context, finished=finished)
    # Both numbers: one sample more and another one deleted leave the first as it was.
    counts = list(zip(_counts(predictions.times, intervals), deleted_in(context.view, intervals), strict=True))
    known = {(cell.interval_start, cell.interval_end, cell.metric): (cell.n_samples, cell.n_deleted) for cell in cells}
    metrics = context.spec.evaluation.metrics
    places = [(as_timestamp(interval.start), as_timestamp(interval.end)) for interval in intervals]
    rows = []
    for asked, numbers in _outdated(places, metrics, known, counts).items():
        chosen = [intervals[i] for i in numbers]
        found = score_intervals(predictions, chosen, asked, min_samples=context.spec.evaluation.min_samples)
        for i, scores in zip(numbers, found, strict=True):
            rows += [_cell(context, model, intervals[i], metric, counts[i], score) for metric, score in scores.items()]
    with context.platform.transaction() as conn:
        record_evaluations(conn, rows)
    return len(rows)


def _outdated(
    places: Sequence[Place], metrics: Sequence[str], known: Mapping[tuple[Any, ...], Counts], counts: Sequence[Counts]
) -> dict[tuple[str, ...], list[int]]:
    """The numbers of the intervals by which of the metrics are missing or outdated there: only those are computed."""
    asked: dict[tuple[str, ...], list[int]] = {}
    for number, (place, count) in enumerate(zip(places, counts, strict=True)):
        missing = tuple(metric for metric in metrics if known.get((*place, metric)) != count)
        if missing:
            asked.setdefault(missing, []).append(number)
    return asked


def deleted_in(view: DatasetView, intervals: Sequence[Interval[np.datetime64]]) -> list[int]:
    """How many evaluation samples of each interval are deleted."""
    return _counts(view.deleted_evaluation_times(), intervals)


def _counts(times: npt.NDArray[np.datetime64], intervals: Sequence[Interval[np.datetime64]]) -> list[int]:
    """How many of the times lie in each interval."""
    times = np.sort(times)
    starts, ends = (np.array([getattr(i, side) for i in intervals], dtype="datetime64[us]") for side in ("start", "end"))
    return [int(n) for n in np.searchsorted(times, ends) - np.searchsorted(times, starts)]


def _cell(
    context: TriggerContext,
    model: ModelRow,
    interval: Interval[np.datetime64],
    metric: str,
    counts: tuple[int, int],
    score: Score,
) -> dict[str, Any]:
    start, end = as_timestamp(interval.start), as_timestamp(interval.end)
    return {
        "trigger_id": context.trigger.id,
        "interval_start": start,
        "interval_end": end,
        "metric": metric,
        "n_samples": counts[0],
        "n_deleted": counts[1],
        "value": score.value,
        "undefined": score.reason,
        "seen_in_training": _seen(context, model, start, end),
    }


def _seen(context: TriggerContext, model: ModelRow, start: datetime, end: datetime) -> bool:
    """Whether the model may have trained on samples of the interval: never where the split keeps evaluation apart."""
    overlaps = start <= model.train_end and end > model.train_start
    return overlaps and context.view.spec.split.evaluate == 0
