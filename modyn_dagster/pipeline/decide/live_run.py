"""Live run of a pipeline: begin, continue or succeed it; stop, resume and reset it."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.runs import RunRow, create_run, ensure_pipeline, ensure_spec, get_run, live_run, move_run
from modyn_dagster.catalog.triggers import TriggerRow, fail, list_triggers, raise_attempt, reopen, unfinished_trigger
from modyn_dagster.data.view import DatasetView
from modyn_dagster.errors import RunError, UnknownName
from modyn_dagster.keys import ORIGIN
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.spec.load import spec_hash


def require_same_spec(platform: Platform, run: RunRow) -> None:
    """Raise ``RunError`` when a pipeline's file says something else than its live run was begun with.

    Only the sensor begins the run of a changed spec. Somebody else who did, while the sensor's process has not loaded the
    change, would see it begin yet another run with the spec of before.
    """
    if run.spec_hash != spec_hash(platform.pipeline(run.pipeline)):
        raise RunError(
            f"the spec of {run.pipeline} has changed since {run.title} began; its sensor begins a new run once Dagster has "
            "loaded the change (within a minute or two), try again then"
        )


def current_live_run(platform: Platform, pipeline: str) -> RunRow:
    """The live run to go on with.

    The first one begins at the first batch, or after the newest with ``start: now``. When the spec's hash has changed, the
    old run ends at its cursor, once its unfinished trigger is done, and a new one begins there with fresh policy state and
    the old run's last model as its previous model. A run that an operator stopped stays until it is resumed.
    """
    spec = platform.pipeline(pipeline)
    view = platform.view(spec.dataset)
    with platform.transaction() as conn:
        pipeline_id = ensure_pipeline(conn, pipeline, view.row.id)
        spec_id = ensure_spec(conn, pipeline_id, spec_hash(spec), spec.model_dump(mode="json", by_alias=True))
        old = live_run(conn, pipeline)
        begin: dict[str, Any] = {"origin": ORIGIN, "cursor": ORIGIN, "last_ordinal": -1}
        if old is not None:
            if old.spec_hash == spec_hash(spec) or unfinished_trigger(conn, old.id) is not None:
                return old
            if old.state in ("stopping", "stopped"):
                return old
            if old.is_open:
                move_run(conn, old, state="ended", finished_at=sa.func.now())
            begin = {"origin": old.cursor, "cursor": old.cursor, "last_ordinal": old.last_ordinal}
            begin["previous_model"] = old.previous_model
        elif spec.start == "now":
            begin = {"origin": view.last_key, "cursor": view.last_key, "last_ordinal": view.last_ordinal}
        return create_run(
            conn,
            pipeline_id=pipeline_id,
            spec_id=spec_id,
            mode="live",
            seed=spec.seed,
            threads=spec.threads,
            **begin,
        )


def reopen_failed_trigger(platform: Platform, run: RunRow) -> list[TriggerRow]:
    """Give the failed triggers of a waiting run fresh attempts; they are trained before anything else is decided."""
    with platform.transaction() as conn:
        now = get_run(conn, run.id, lock=True)
        if now.state != "waiting":
            raise RunError(f"{now.title} is {now.state}, there is nothing to resume")
        triggers = list_triggers(conn, now.id)
        failed = [reopen(conn, row) for row in triggers[-1:] if row.state == "failed"]
        move_run(conn, now, state="active")
    return failed


#: States in which a run goes on only after ``pipeline resume``.
RESUMABLE = ("waiting", "stopping", "stopped")


@dataclass(frozen=True, slots=True)
class Stopped:
    """A run as it stands now, and the trigger that it still finishes, or whose attempt was given up.

    ``holder`` is the Dagster run that had claimed the attempt given up.
    """

    run: RunRow
    trigger: TriggerRow | None
    holder: str | None = None


def stop_run(platform: Platform, run: RunRow, *, at_once: bool = False) -> Stopped:
    """Have a live run decide nothing until it is resumed. Stopping a stopped run changes nothing.

    An unfinished trigger is finished first: the run is ``stopping`` until a tick sees the end of it. ``at_once`` gives its
    attempt up instead: whoever trains it can no longer commit, and the next attempt waits for ``resume``.

    Raises ``RunError`` for a replay, and for a run that is over or waits for an operator already.
    """
    with platform.transaction() as conn:
        now = get_run(conn, run.id, lock=True)
        if now.mode != "live" or now.state not in ("active", "stopping", "stopped"):
            raise RunError(f"{now.title} is {now.state}: there is nothing to stop")
        left = unfinished_trigger(conn, now.id)
        if now.state == "stopped":
            return Stopped(now, left)
        holder = None
        if left is not None and at_once:
            holder = left.dagster_run_id
            left = raise_attempt(conn, left, "given up: an operator stopped the run")
        state = "stopping" if left is not None and not at_once else "stopped"
        return Stopped(now if now.state == state else move_run(conn, now, state=state), left, holder)


def resume_run(platform: Platform, run: RunRow) -> Stopped:
    """Let a run that waits or was stopped go on; a trigger that failed or was given up is trained again first.

    Raises ``RunError`` for a run in any other state.
    """
    with platform.transaction() as conn:
        now = get_run(conn, run.id, lock=True)
        if now.state not in RESUMABLE:
            raise RunError(f"{now.title} is {now.state}, there is nothing to resume")
        if now.state != "waiting":
            return Stopped(move_run(conn, now, state="active"), unfinished_trigger(conn, now.id))
    reopened = reopen_failed_trigger(platform, now)
    with platform.transaction() as conn:
        return Stopped(get_run(conn, now.id), reopened[0] if reopened else None)


@dataclass(frozen=True, slots=True)
class Reset:
    """The run that ended, the trigger it gave up, the run that begins, and the first batch that it sees (None: the next)."""

    old: RunRow
    given_up: TriggerRow | None
    new: RunRow
    first: str | None


def reset_run(platform: Platform, pipeline: str, before: str | None = None, *, at_once: bool = False) -> Reset:
    """End the live run at its cursor and begin a new one before a batch (default: the first), with nothing carried over.

    The old run stays readable. An unfinished trigger is an error; ``at_once`` closes it as failed, and whoever trains it can
    no longer commit.

    Raises:
        RunError: there is no live run yet, it has an unfinished trigger, or the sensor has not begun the run of a changed
            spec yet.
        UnknownName: pipelines do not see such a batch.
    """
    spec = platform.pipeline(pipeline)
    view = platform.view(spec.dataset)
    begin, first = _begin(view, before)
    with platform.transaction() as conn:
        pipeline_id = ensure_pipeline(conn, pipeline, view.row.id)
        found = live_run(conn, pipeline)
        if found is None:
            raise RunError(f"{pipeline} has no live run; the sensor triggering__{pipeline} begins one")
        require_same_spec(platform, found)
        old = get_run(conn, found.id, lock=True)
        left = unfinished_trigger(conn, old.id)
        if left is not None:
            if not at_once:
                raise RunError(f"{old.title} still has to train trigger {left.partition_key}; let it end, or give it up (--now)")
            left = fail(conn, left, "given up: an operator reset the run")
        if old.is_open:
            old = move_run(conn, old, state="ended", finished_at=sa.func.now())
        spec_id = ensure_spec(conn, pipeline_id, spec_hash(spec), spec.model_dump(mode="json", by_alias=True))
        settings = {"seed": spec.seed, "threads": spec.threads}
        new = create_run(conn, pipeline_id=pipeline_id, spec_id=spec_id, mode="live", **settings, **begin)
    return Reset(old, left, new, first)


def _begin(view: DatasetView, before: str | None) -> tuple[dict[str, Any], str | None]:
    """Where a run stands that sees a batch (default: the first one) and what follows; the batch's key."""
    keys = {batch.partition_key: batch.ordinal for batch in view.batches}
    if before is not None and before not in keys:
        raise UnknownName("batch", before, [*keys][-5:])
    first = before if before is not None else next(iter(keys), None)
    ordinal = keys[first] if first is not None else 0
    origin = view.last_key_of(ordinal - 1)
    return {"origin": origin, "cursor": origin, "last_ordinal": ordinal - 1}, first
