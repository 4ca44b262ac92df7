"""Runs that a deletion ``as_if_deleted`` begins anew, with the samples as holes, in place of those that counted them.

Each run is begun anew in one transaction with the request's document. A replay is then walked to where the old one had come; a
live run goes on as every live run does, by the ticks of its sensor, over the same batches.
"""

from collections.abc import Iterator
from time import perf_counter

import sqlalchemy as sa

from modyn_dagster.catalog.batches import list_batches
from modyn_dagster.catalog.results.models import list_models, model_uses
from modyn_dagster.catalog.runs import RunRow, create_run, get_run, list_runs, move_run, replay_run
from modyn_dagster.catalog.triggers import fail, list_triggers, unfinished_trigger
from modyn_dagster.keys import ORIGIN, ordinal_of
from modyn_dagster.pipeline.holes import holes_with
from modyn_dagster.pipeline.operate.deletion.document import DeletionDocument, PipelineAction
from modyn_dagster.pipeline.operate.deletion.making import Request, make_models
from modyn_dagster.pipeline.operate.deletion.since_arrival import concerned, first_counted, has_reached, why_not_anew
from modyn_dagster.pipeline.replay.run import ReplayRequest, require_idle
from modyn_dagster.pipeline.replay.walk import replay


def begin_anew(request: Request) -> Request:
    """Begin the runs anew that had reached the samples, and withdraw what they and others have made since.

    Runs that come later to the samples get them as holes. Raises ``RunError`` while a process works on such a replay.
    """
    while True:
        request = _with_later_runs(request)
        for action in _pending(request.document):
            request = _begin(request, action)
        request = make_models(request)
        if not _pending(request.document):
            break
    for run in _without_holes(request):
        _add_holes(request, run)
    return request


def walk_anew(request: Request) -> Request:
    """Walk the replays that were begun anew to where the old ones had come. Raises what a replay raises; call it again then."""
    for action in request.document.actions:
        if action.way == "decide_anew" and action.mode == "replay" and action.anew is not None and action.state != "done":
            request = _walk(request, action)
    return request


def _pending(document: DeletionDocument) -> list[PipelineAction]:
    return [action for action in document.actions if action.way == "decide_anew" and action.anew is None]


def _with_later_runs(request: Request) -> Request:
    """Record runs that have reached the samples since the plan was made."""
    document = request.document
    with request.platform.transaction() as conn:
        known = {action.run_id for action in document.actions}
        place = (conn, request.platform, request.dataset, request.keys)
        _, actions = concerned(*place, [], model_uses(conn), document.mode, {})
        later = [action for action in actions if action.run_id not in known and action.way == "decide_anew"]
        if not later:
            return request
        return request.moved(conn, document.model_copy(update={"actions": [*document.actions, *later]}))


def _begin(request: Request, action: PipelineAction) -> Request:
    platform, document = request.platform, request.document
    with platform.transaction() as conn:
        run = get_run(conn, action.run_id)
    holes = holes_with(platform, request.dataset, run, request.keys)
    with platform.transaction() as conn:
        run = get_run(conn, action.run_id, lock=True)
        refused = why_not_anew(conn, platform, run)
        if refused:
            changed, note = action.on_way("retire"), f"{run.title}: {refused}; what it has made since is withdrawn"
        else:
            new = _begun(conn, run, holes, f"given up: deletion request {document.request} has the run decided anew")
            changed, note = (
                action.model_copy(update={"anew": new.id, "state": "under_way"}),
                f"{run.title}: begun anew as run {new.id}",
            )
            note += "; its sensor decides and trains from here on" * (run.mode == "live")
        actions = [changed if each.run_id == action.run_id else each for each in document.actions]
        return request.moved(conn, document.model_copy(update={"actions": actions, "notes": [*document.notes, note]}))


def _begun(conn: sa.Connection, run: RunRow, holes: int, reason: str) -> RunRow:
    """End a run that is not over, and begin it once more."""
    if run.mode == "replay":
        require_idle(conn, run)
    unfinished = unfinished_trigger(conn, run.id)
    if unfinished is not None:
        fail(conn, unfinished, reason)
    if run.is_open:
        move_run(conn, run, state="ended", finished_at=sa.func.now())
    return create_run(
        conn,
        pipeline_id=run.pipeline_id,
        spec_id=run.spec_id,
        mode=run.mode,
        name=run.name,
        seed=run.seed,
        threads=run.threads,
        state="stopped" if run.state in ("stopping", "stopped") else "active",
        origin=run.origin,
        cursor=run.origin,
        last_ordinal=ordinal_of(run.origin),
        # The new run decides for itself what a live run had taken over from a replay.
        options=run.options if run.mode == "replay" else {},
        previous_model=_first_previous(conn, run),
        hole_set_id=holes,
    )


def _first_previous(conn: sa.Connection, run: RunRow) -> str | None:
    """Model that a live run took over from the run before; a withdrawn one is followed when it goes."""
    if run.mode == "replay" or run.origin == ORIGIN:
        return None
    before = [each for each in list_runs(conn, run.pipeline) if each.mode == "live" and each.id < run.id]
    return next((each.previous_model for each in reversed(before) if each.cursor == run.origin), None)


def _without_holes(request: Request) -> Iterator[RunRow]:
    """Runs that count some of the samples, and will come to them only later."""
    with request.platform.transaction() as conn:
        runs = [run for run in list_runs(conn) if run.dataset_id == request.dataset.id and run.state != "ended"]
        firsts = {run.id: first_counted(conn, request.platform, run, request.keys) for run in runs}
    return (run for run in runs if firsts[run.id] is not None and not has_reached(run, firsts[run.id]))


def _add_holes(request: Request, run: RunRow) -> None:
    holes = holes_with(request.platform, request.dataset, run, request.keys)
    with request.platform.transaction() as conn:
        if run.mode == "replay":
            require_idle(conn, run)
        move_run(conn, run, hole_set_id=holes)


def _walk(request: Request, action: PipelineAction) -> Request:
    platform, began = request.platform, perf_counter()
    with platform.transaction() as conn:
        old, new = get_run(conn, action.run_id), get_run(conn, action.anew or 0)
        newest = replay_run(conn, new.pipeline, spec_hash=new.spec_hash, seed=new.seed, name=new.name)
        batches = list_batches(conn, request.dataset.id, "ingested")
    keys = [batch.partition_key for batch in batches if ordinal_of(new.origin) < batch.ordinal <= old.last_ordinal]
    # Where a person has begun it once more since, that run has the same holes.
    if newest is not None and newest.id == new.id:
        holder = f"deletion request {request.document.request}"
        for _ in replay(platform, ReplayRequest(new.pipeline, keys, holder, name=new.name, seed=new.seed)):
            pass
    with platform.transaction() as conn:
        return request.moved(conn, _walked(conn, request.document, action, perf_counter() - began))


def _walked(conn: sa.Connection, document: DeletionDocument, action: PipelineAction, seconds: float) -> DeletionDocument:
    """Document in which a withdrawn model of a replay has in its place that of the new run's trigger at the same key, if any."""
    made = {model.key: model.hash for model in list_models(conn, action.anew or 0)}
    keys = {trigger.partition_key: trigger.key for trigger in list_triggers(conn, action.run_id)}
    models = [
        each.model_copy(update={"replaced_by": made.get(keys[each.trigger])}) if each.trigger in keys else each
        for each in document.models
    ]
    done = action.model_copy(update={"state": "done", "took": action.took + seconds})
    actions = [done if each.run_id == action.run_id else each for each in document.actions]
    return document.model_copy(update={"models": models, "actions": actions})
