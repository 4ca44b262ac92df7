"""Cells of the evaluation matrix: one model on the closed intervals, from its stored predictions."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.evaluations import list_evaluations, list_predictions, record_evaluations
from modyn_dagster.catalog.models import ModelRow, list_models
from modyn_dagster.catalog.moments import as_datetime64, as_timestamp
from modyn_dagster.evaluation.cells import score_intervals
from modyn_dagster.evaluation.intervals import Interval, closed_intervals, generate_intervals
from modyn_dagster.evaluation.metrics import Score
from modyn_dagster.evaluation.predictions import Predictions, read_predictions
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.view import DatasetView
from modyn_dagster.spec.intervals import BetweenTriggers, OffsetIntervals

#: Of sample times: intervals end one after the last.
_UNIT: Final = np.timedelta64(1, "us")


def run_intervals(context: TriggerContext, *, finished: bool) -> list[Interval[np.datetime64]]:
    """The intervals of a run that are closed by now: stream time has passed their end, or the run has finished.

    An interval keeps its full length however far the data reach, so it is the same interval when more data arrive. Those at
    offsets of a model are judged with that model alone.
    """
    first = context.view.first_evaluation_time(context.run.origin)
    reached = context.view.time_reached
    if first is None or reached is None:
        return []
    block, training, own = context.spec.evaluation.intervals, [], None
    if isinstance(block, BetweenTriggers | OffsetIntervals):
        with context.platform.transaction() as conn:
            models = list_models(conn, context.run.id)
        training = [(as_datetime64(model.train_start), as_datetime64(model.train_end)) for model in models]
        own = next((i for i, model in enumerate(models) if model.ordinal == context.trigger.ordinal), None)
    found = generate_intervals(block, first, reached + _UNIT, training, cut=False)
    mine = {(interval.start, interval.end): interval for interval in found if interval.model in (None, own)}
    return closed_intervals(list(mine.values()), reached, finished=finished)


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
    outdated = [i for i, place in enumerate(places) if any(known.get((*place, m)) != counts[i] for m in metrics)]
    chosen = [intervals[i] for i in outdated]
    found = score_intervals(predictions, chosen, metrics, min_samples=context.spec.evaluation.min_samples)
    rows = [
        _cell(context, model, intervals[i], metric, counts[i], score)
        for i, scores in zip(outdated, found, strict=True)
        for metric, score in scores.items()
    ]
    with context.platform.transaction() as conn:
        record_evaluations(conn, rows)
    return len(rows)


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
