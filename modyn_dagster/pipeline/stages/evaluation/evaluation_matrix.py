"""Evaluation matrix of a run: the intervals a model is evaluated on, and the batches it predicts for them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.evaluation import (
    Interval,
    closed_intervals,
    currently_active,
    currently_served,
    currently_trained,
    generate_intervals,
)
from modyn_dagster.evaluation.composite.custom import currently_chosen
from modyn_dagster.evaluation.composite.scores import Choice
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet
from modyn_dagster.spec.evaluation import EvaluationSpec
from modyn_dagster.spec.intervals import BetweenTriggers, OffsetIntervals, follow_models

#: Resolution of sample times: intervals end one unit after the last.
_UNIT: Final = np.timedelta64(1, "us")
#: Ends of intervals that reach to infinity come after it.
_LAST_MOMENT: Final = np.datetime64(np.iinfo(np.int64).max, "us")
#: Composite models whose members are evaluated, by the kind of matrix; with the other kinds every model is.
_COMPOSITES: Final[Mapping[str, Sequence[Callable[..., Choice]]]] = {
    "composite": (currently_active, currently_trained),
    "active": (currently_active,),
    "trained": (currently_trained,),
}


def with_full_matrix(context: TriggerContext) -> TriggerContext:
    """Return a context whose model is evaluated on every interval, whatever its spec says."""
    evaluation = context.spec.evaluation.model_copy(update={"matrix": "full"})
    return replace(context, spec=context.spec.model_copy(update={"evaluation": evaluation}))


def model_intervals(context: TriggerContext, data: EvaluationSet) -> list[Interval[np.datetime64]]:
    """Return the intervals that a trigger's model is evaluated on, open or closed, as far as the context's view reaches.

    An interval keeps its full length however far the data reach, so it stays the same interval when more data arrive.
    With ``matrix: composite``, ``active`` or ``trained`` only those remain in which the model is a composite model of its run.
    Intervals at offsets of a model are for that model alone, and ``composite`` keeps all of them.
    """
    first = data.first_time()
    reached = data.view.time_reached
    if first is None or reached is None:
        return []
    spec = context.spec.evaluation
    composites = _composites(spec)
    if not composites and not follow_models(spec.intervals):
        return generate_intervals(spec.intervals, first, reached + _UNIT, cut=False)
    models = context.models
    own = next((number for number, model in enumerate(models) if model.ordinal == context.trigger.ordinal), None)
    training = [(as_datetime64(model.train_start), as_datetime64(model.train_end)) for model in models]
    # Intervals between triggers follow the run that selected the samples; offsets follow the evaluated model itself.
    spans = data.spans if data.spans is not None and isinstance(spec.intervals, BetweenTriggers) else training
    intervals = generate_intervals(spec.intervals, first, reached + _UNIT, spans, cut=False)
    if composites:
        ends = np.array([end for _, end in training], dtype="datetime64[us]")
        anchors = np.array([interval.anchor for interval in intervals], dtype="datetime64[us]")
        choices = [chosen(ends, anchors) for chosen in composites] + served_choices(context, anchors)
        is_own = np.any([choice == own for choice in choices], axis=0)
        intervals = [interval for interval, keep in zip(intervals, is_own.tolist(), strict=True) if keep]
    # Two triggers at the same time give the same empty interval twice.
    return list({(i.start, i.end): i for i in intervals if i.model in (None, own)}.values())


def served_choices(context: TriggerContext, anchors: npt.NDArray[np.datetime64]) -> list[Choice]:
    """Return the model that served on each interval, by its place among the run's models; nothing without a gate."""
    if not context.served:
        return []
    places = {model.ordinal: place for place, model in enumerate(context.models)}
    moments = np.array([as_datetime64(moment) for moment, _ in context.served], dtype="datetime64[us]")
    return [currently_served(moments, [places.get(ordinal, -1) for _, ordinal in context.served], anchors)]


def closed_model_intervals(context: TriggerContext, data: EvaluationSet, *, finished: bool) -> list[Interval[np.datetime64]]:
    """Return the intervals of a model that are closed: stream time has passed their end, or the run has finished."""
    return closed_intervals(model_intervals(context, data), data.view.time_reached, finished=finished)


def known_positions(
    context: TriggerContext,
    data: EvaluationSet,
    intervals: Sequence[Interval[np.datetime64]],
    maturity: np.timedelta64 | None = None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Positions in the sequence of arrivals that the scores of intervals are known at, ``int64[n]``.

    That of the first batch whose samples reach the end of the interval, or lie ``maturity`` behind it; of the newest one where no
    batch does; and no earlier than that of the batch at which the model's trigger was decided.

    Returns:
        The positions, and a mask ``bool[n]`` of the intervals that have not matured there; never without ``maturity``.
    """
    batches = data.view.batches
    arrivals = data.view.arrivals
    last = data.view.columns.last
    reached = np.maximum.accumulate(np.where(np.isnat(last), np.datetime64(np.iinfo(np.int64).min + 1, "us"), last))
    ends = np.array([interval.end for interval in intervals], dtype="datetime64[us]")
    if maturity is not None:
        # An interval may reach to the last moment that a time can hold.
        ends = np.minimum(ends, _LAST_MOMENT - maturity) + maturity
    found = np.searchsorted(reached, ends, side="left")
    closing = np.minimum(found, len(batches) - 1)
    decided = int(np.searchsorted([batch.ordinal for batch in batches], ordinal_of(context.trigger.point)))
    positions: npt.NDArray[np.int64] = np.maximum(arrivals[closing], arrivals[min(decided, len(batches) - 1)])
    return positions, (found == len(batches)) & (maturity is not None)


def model_batches(context: TriggerContext, data: EvaluationSet) -> Sequence[BatchRow]:
    """Return the batches that a model predicts: all with evaluation samples, or those that its part of the matrix touches."""
    if context.spec.evaluation.matrix not in _COMPOSITES:
        return data.batches
    batches, columns = data.batches, data.columns
    touched = np.zeros(len(batches), dtype=np.bool_)
    for interval in model_intervals(context, data):
        touched |= (columns.first < interval.end) & (columns.last >= interval.start)
    return [batches[number] for number in np.flatnonzero(touched).tolist()]


def _composites(spec: EvaluationSpec) -> Sequence[Callable[..., Choice]]:
    if spec.matrix == "composite" and isinstance(spec.intervals, OffsetIntervals):
        return ()
    composites = _COMPOSITES.get(spec.matrix, ())
    return [*composites, partial(currently_chosen, spec.composite)] if composites and spec.composite else composites
