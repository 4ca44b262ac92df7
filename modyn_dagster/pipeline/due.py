"""Which models of a run have something left to be judged on."""

from modyn_dagster.catalog.evaluations import list_evaluations, list_predictions
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from modyn_dagster.pipeline.context import trigger_context
from modyn_dagster.pipeline.evaluate import missing_batches
from modyn_dagster.pipeline.platform import Platform, spec_of
from modyn_dagster.pipeline.score import run_intervals


def evaluation_due(platform: Platform, run: RunRow) -> list[TriggerRow]:
    """Trained triggers with batches not predicted or closed intervals not scored, in order.

    A trigger whose predictions retention has removed is past judging and never due.
    """
    view = platform.view(spec_of(run).dataset)
    with platform.transaction() as conn:
        trained = list_triggers(conn, run.id, ["trained"])
        files = {trigger.id: list_predictions(conn, trigger.id) for trigger in trained}
        cells = {trigger.id: len(list_evaluations(conn, run.id, trigger.id)) for trigger in trained}
    due = []
    for trigger in trained:
        if any(file.removed_at is not None for file in files[trigger.id]):
            continue
        context = trigger_context(platform, run, trigger, view)
        expected = len(run_intervals(context, finished=False)) * len(context.spec.evaluation.metrics)
        if missing_batches(context, files[trigger.id]) or cells[trigger.id] < expected:
            due.append(trigger)
    return due
