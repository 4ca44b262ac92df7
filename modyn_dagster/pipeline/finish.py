"""Finishing a run: the last interval is closed, whatever stream time says."""

from collections.abc import Iterator

import sqlalchemy as sa

from modyn_dagster.catalog.runs import RunRow, get_run, move_run
from modyn_dagster.catalog.triggers import list_triggers, unfinished_trigger
from modyn_dagster.errors import RunError
from modyn_dagster.pipeline.context import trigger_context
from modyn_dagster.pipeline.platform import Platform, spec_of
from modyn_dagster.pipeline.stages import StageResult, evaluation_stage
from modyn_dagster.pipeline.view import DatasetView


def finish_evaluations(platform: Platform, run: RunRow, view: DatasetView) -> Iterator[StageResult]:
    """Judge every model of a run on all its intervals up to the end of a view, the open last one included."""
    if spec_of(run).evaluation.matrix == "lazy":
        return
    with platform.transaction() as conn:
        trained = list_triggers(conn, run.id, ["trained"])
    for trigger in trained:
        yield evaluation_stage(trigger_context(platform, run, trigger, view), finished=True)


def finish_run(platform: Platform, run_id: int) -> RunRow:
    """Mark a run as finished."""
    with platform.transaction() as conn:
        run = get_run(conn, run_id, lock=True)
        if run.state == "finished":
            return run
        left = unfinished_trigger(conn, run_id)
        if left is not None:
            raise RunError(f"{run.title} still has to train trigger {left.partition_key}; let it end first")
        return move_run(conn, run, state="finished", finished_at=sa.func.now())


def finish_live_run(platform: Platform, run: RunRow) -> Iterator[StageResult]:
    """End a live run for good: finish it, then judge its models on everything it has seen."""
    finished = finish_run(platform, run.id)
    view = platform.view(spec_of(run).dataset, until=finished.last_ordinal)
    yield from finish_evaluations(platform, finished, view)
