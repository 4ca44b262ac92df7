"""Evaluation matrix of a run: the intervals a model is evaluated on, and the batches it predicts for them."""

from typing import Final

import numpy as np

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.evaluation import Interval, closed_intervals, currently_active, currently_trained, generate_intervals
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet
from modyn_dagster.spec.intervals import BetweenTriggers, OffsetIntervals

#: Of sample times: intervals end one after the last.
_UNIT: Final = np.timedelta64(1, "us")
_FOLLOW_MODELS: Final = (BetweenTriggers, OffsetIntervals)


def model_intervals(context: TriggerContext, data: EvaluationSet) -> list[Interval[np.datetime64]]:
    """The intervals that a trigger's model is judged on, closed or not, as far as the context's view reaches.

    An interval keeps its full length however far the data reach, so it is the same interval when more data arrive. Those at
    offsets of a model are judged with that model alone. With ``matrix: active`` or ``trained`` those are left in which another
    model of the run is the active or the trained one.
    """
    first = data.first_time()
    reached = data.view.time_reached
    if first is None or reached is None:
        return []
    spec = context.spec.evaluation
    composite = {"active": currently_active, "trained": currently_trained}.get(spec.matrix)
    if composite is None and not isinstance(spec.intervals, _FOLLOW_MODELS):
        return generate_intervals(spec.intervals, first, reached + _UNIT, cut=False)
    with context.platform.transaction() as conn:
        models = list_models(conn, context.run.id)
    own = next((place for place, model in enumerate(models) if model.ordinal == context.trigger.ordinal), None)
    training = [(as_datetime64(model.train_start), as_datetime64(model.train_end)) for model in models]
    # Between triggers means those of the run that the samples were selected by; offsets are of the judged model itself.
    spans = data.spans if data.spans is not None and isinstance(spec.intervals, BetweenTriggers) else training
    found = generate_intervals(spec.intervals, first, reached + _UNIT, spans, cut=False)
    if composite is not None:
        ends = np.array([end for _, end in training], dtype="datetime64[us]")
        chosen = composite(ends, np.array([interval.anchor for interval in found], dtype="datetime64[us]"))
        found = [interval for interval, model in zip(found, chosen.tolist(), strict=True) if model == own]
    # Two triggers at one time leave the same empty interval twice.
    return list({(i.start, i.end): i for i in found if i.model in (None, own)}.values())


def closed_model_intervals(context: TriggerContext, data: EvaluationSet, *, finished: bool) -> list[Interval[np.datetime64]]:
    """Those of them that are closed by now: stream time has passed their end, or the run has finished."""
    return closed_intervals(model_intervals(context, data), data.view.time_reached, finished=finished)


def model_batches(context: TriggerContext, data: EvaluationSet) -> list[BatchRow]:
    """The batches a model is to predict: those after the run's origin, and with a part of the matrix those it touches."""
    if context.spec.evaluation.matrix not in ("active", "trained"):
        return data.batches
    spans = [(interval.start, interval.end) for interval in model_intervals(context, data)]
    return [batch for batch in data.batches if any(_touches(batch, *span) for span in spans)]


def _touches(batch: BatchRow, start: np.datetime64, end: np.datetime64) -> bool:
    if batch.time_min is None or batch.time_max is None:
        return False
    return bool(as_datetime64(batch.time_min) < end and as_datetime64(batch.time_max) >= start)
