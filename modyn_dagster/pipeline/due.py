"""Which models of a run have something left to be judged on."""

from collections.abc import Sequence

from modyn_dagster.catalog.evaluations import EvaluationRow, list_evaluations, list_predictions
from modyn_dagster.catalog.models import list_models
from modyn_dagster.catalog.moments import as_timestamp
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from modyn_dagster.pipeline.context import TriggerContext, trigger_context
from modyn_dagster.pipeline.judged_on import JudgedOn
from modyn_dagster.pipeline.judged_training import judged_on
from modyn_dagster.pipeline.platform import Platform, spec_of
from modyn_dagster.pipeline.score import count_in
from modyn_dagster.pipeline.stored import missing_batches
from modyn_dagster.pipeline.wanted import run_intervals


def evaluation_due(platform: Platform, run: RunRow) -> list[TriggerRow]:
    """Trained triggers with batches not predicted, or closed intervals not scored since their last deletion, in order.

    A trigger whose predictions retention has removed is past judging and never due; with ``matrix: lazy`` none is.
    """
    if spec_of(run).evaluation.matrix == "lazy":
        return []
    view = platform.view(spec_of(run).dataset)
    with platform.transaction() as conn:
        trained = list_triggers(conn, run.id, ["trained"])
        hashes = {model.trigger_id: model.hash for model in list_models(conn, run.id)}
        files = {trigger.id: list_predictions(conn, trigger.id, hashes[trigger.id]) for trigger in trained}
        cells = {trigger.id: list_evaluations(conn, run.id, trigger.id) for trigger in trained}
    if not trained:
        return []
    data = judged_on(trigger_context(platform, run, trained[0], view))
    due = []
    for trigger in trained:
        if any(file.removed_at is not None for file in files[trigger.id]):
            continue
        context = trigger_context(platform, run, trigger, view)
        if missing_batches(context, data, files[trigger.id]) or _outdated(context, data, cells[trigger.id]):
            due.append(trigger)
    return due


def _outdated(context: TriggerContext, data: JudgedOn, cells: Sequence[EvaluationRow]) -> bool:
    """Whether a cell is missing, or samples have come to its interval or were deleted from it since it was scored."""
    intervals = run_intervals(context, data, finished=False)
    if len(cells) < len(intervals) * len(context.spec.evaluation.metrics):
        return True
    places = [(as_timestamp(interval.start), as_timestamp(interval.end)) for interval in intervals]
    gone = dict(zip(places, count_in(data, intervals, deleted=True), strict=True))
    if any(cell.n_deleted != gone.get((cell.interval_start, cell.interval_end), cell.n_deleted) for cell in cells):
        return True
    # Where samples come with batches alone, a batch that is not predicted says so sooner.
    there = dict(zip(places, count_in(data, intervals, deleted=False), strict=True)) if data.grows else {}
    return any(cell.n_samples != there.get((cell.interval_start, cell.interval_end), cell.n_samples) for cell in cells)
