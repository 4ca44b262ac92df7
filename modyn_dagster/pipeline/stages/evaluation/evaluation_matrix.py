"""Evaluation matrix of a run: the intervals a model is evaluated on, and the batches it predicts for them."""

from typing import Final

import numpy as np

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.evaluation import Interval, closed_intervals, currently_active, currently_trained, generate_intervals
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet
from modyn_dagster.spec.intervals import BetweenTriggers, OffsetIntervals

#: Resolution of sample times: intervals end one unit after the last.
_UNIT: Final = np.timedelta64(1, "us")
_FOLLOW_MODELS: Final = (BetweenTriggers, OffsetIntervals)


def model_intervals(context: TriggerContext, data: EvaluationSet) -> list[Interval[np.datetime64]]:
    """Return the intervals that a trigger's model is evaluated on, open or closed, as far as the context's view reaches.

    An interval keeps its full length however far the data reach, so it stays the same interval when more data arrive.
    Intervals at offsets of a model are for that model alone. With ``matrix: active`` or ``trained`` only those remain in which
    the model is the active or the trained one of its run.
    """
    first = data.first_time()
    reached = data.view.time_reached
    if first is None or reached is None:
        return []
    spec = context.spec.evaluation
    composite = {"active": currently_active, "trained": currently_trained}.get(spec.matrix)
    if composite is None and not isinstance(spec.intervals, _FOLLOW_MODELS):
        return generate_intervals(spec.intervals, first, reached + _UNIT, cut=False)
    models = context.models
    own = next((number for number, model in enumerate(models) if model.ordinal == context.trigger.ordinal), None)
    training = [(as_datetime64(model.train_start), as_datetime64(model.train_end)) for model in models]
    # Intervals between triggers follow the run that selected the samples; offsets follow the evaluated model itself.
    spans = data.spans if data.spans is not None and isinstance(spec.intervals, BetweenTriggers) else training
    intervals = generate_intervals(spec.intervals, first, reached + _UNIT, spans, cut=False)
    if composite is not None:
        ends = np.array([end for _, end in training], dtype="datetime64[us]")
        chosen = composite(ends, np.array([interval.anchor for interval in intervals], dtype="datetime64[us]"))
        intervals = [interval for interval, model in zip(intervals, chosen.tolist(), strict=True) if model == own]
    # Two triggers at the same time give the same empty interval twice.
    return list({(i.start, i.end): i for i in intervals if i.model in (None, own)}.values())


def closed_model_intervals(context: TriggerContext, data: EvaluationSet, *, finished: bool) -> list[Interval[np.datetime64]]:
    """Return the intervals of a model that are closed: stream time has passed their end, or the run has finished."""
    return closed_intervals(model_intervals(context, data), data.view.time_reached, finished=finished)


def model_batches(context: TriggerContext, data: EvaluationSet) -> list[BatchRow]:
    """Return the batches that a model predicts: all with evaluation samples, or those that its part of the matrix touches."""
    if context.spec.evaluation.matrix not in ("active", "trained"):
        return data.batches
    spans = [(interval.start, interval.end) for interval in model_intervals(context, data)]
    return [batch for batch in data.batches if any(_touches(batch, *span) for span in spans)]


def _touches(batch: BatchRow, start: np.datetime64, end: np.datetime64) -> bool:
    if batch.time_min is None or batch.time_max is None:
        return False
    return bool(as_datetime64(batch.time_min) < end and as_datetime64(batch.time_max) >= start)
