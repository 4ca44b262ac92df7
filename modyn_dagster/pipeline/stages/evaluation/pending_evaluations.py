"""Models of a run with batches or intervals left to evaluate."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Final

from modyn_dagster.catalog.database.mapping import as_timestamp
from modyn_dagster.catalog.results.evaluations import EvaluationRow, list_evaluations
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from modyn_dagster.errors import ImportPathError
from modyn_dagster.evaluation.cells import code_of
from modyn_dagster.evaluation.metrics.registry import metric_code
from modyn_dagster.pipeline.context import TriggerContext, trigger_context
from modyn_dagster.pipeline.models import predictor_id
from modyn_dagster.pipeline.platform import Platform, spec_of
from modyn_dagster.pipeline.stages.evaluation.cells import count_in
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet
from modyn_dagster.pipeline.stages.evaluation.evaluation_matrix import closed_model_intervals
from modyn_dagster.pipeline.stages.evaluation.prediction_files import missing_batches
from modyn_dagster.pipeline.stages.evaluation.training_data import evaluation_set

#: Of one look: models from the first one that is due on.
_MODELS_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class PendingScan:
    """What a look at the models of a run, from the newest on, has found.

    Attributes:
        due: trained triggers with something left to judge, in order.
        looked: how many trained triggers were looked at, those of earlier looks included.
        complete: whether these are all.
    """

    due: Sequence[TriggerRow]
    looked: int
    complete: bool


def triggers_to_evaluate(platform: Platform, run: RunRow) -> Sequence[TriggerRow]:
    """Trained triggers with batches not predicted, or closed intervals not scored since their last deletion, in order.

    A trigger whose predictions retention has removed is past judging and never due; with ``matrix: lazy`` none is.
    """
    due: list[TriggerRow] = []
    look = PendingScan([], 0, complete=False)
    while not look.complete:
        look = scan_pending(platform, run, look.looked)
        due = [*look.due, *due]
    return due


def scan_pending(platform: Platform, run: RunRow, begin: int = 0, seconds: float = inf) -> PendingScan:
    """Some of the same, ``begin`` models before the newest: what is found depends on that alone, not on the time it takes.

    It ends a hundred models after the first that is due; as long as none is, after about so many seconds.
    """
    if spec_of(run).evaluation.matrix == "lazy":
        return PendingScan([], 0, complete=True)
    view = platform.view(spec_of(run).dataset)
    with platform.transaction() as conn:
        trained = list_triggers(conn, run.id, ["trained"])
        hashes = {model.trigger_id: model.hash for model in list_models(conn, run.id)}
    if not trained:
        return PendingScan([], 0, complete=True)
    data = evaluation_set(trigger_context(platform, run, trained[0], view))
    due, looked, end, last = list[TriggerRow](), begin, monotonic() + seconds, len(trained)
    for looked, trigger in enumerate(trained[::-1][begin:], begin + 1):
        if _is_due(trigger_context(platform, run, trigger, view), data, hashes[trigger.id]):
            last = last if due else min(last, looked + _MODELS_AT_ONCE - 1)
            due.insert(0, trigger)
        if looked >= last or (not due and monotonic() > end):
            break
    return PendingScan(due, looked, complete=looked >= len(trained))


def _is_due(context: TriggerContext, data: EvaluationSet, model_hash: str) -> bool:
    with context.platform.transaction() as conn:
        files = list_predictions(conn, context.trigger.id, predictor_id(model_hash, context.spec.training))
        cells = list_evaluations(conn, context.run.id, context.trigger.id)
    if any(file.removed_at is not None for file in files):
        return False
    return bool(missing_batches(context, data, files)) or _outdated(context, data, cells)


def _outdated(context: TriggerContext, data: EvaluationSet, cells: Sequence[EvaluationRow]) -> bool:
    """Whether a cell is missing or its metric has other code now, or samples came to its interval or were deleted from it."""
    intervals = closed_model_intervals(context, data, finished=False)
    if len(cells) < len(intervals) * len(context.spec.evaluation.metrics):
        return True
    codes = {metric: _code(metric) for metric in context.spec.evaluation.metrics}
    if any(codes[cell.metric] not in (None, code_of(cell.address)) for cell in cells if cell.metric in codes):
        return True
    places = [(as_timestamp(interval.start), as_timestamp(interval.end)) for interval in intervals]
    gone = dict(zip(places, count_in(data, intervals, deleted=True), strict=True))
    if any(cell.n_deleted != gone.get((cell.interval_start, cell.interval_end), cell.n_deleted) for cell in cells):
        return True
    # Where samples come with batches alone, a batch that is not predicted says so sooner.
    there = dict(zip(places, count_in(data, intervals, deleted=False), strict=True)) if data.grows else {}
    return any(cell.n_samples != there.get((cell.interval_start, cell.interval_end), cell.n_samples) for cell in cells)


def _code(metric: str) -> str | None:
    """What a metric does now; None where it cannot be imported any more, and what it gave is all there is."""
    try:
        return metric_code(metric)
    except ImportPathError:
        return None
