"""Live run of a pipeline: begin, continue or succeed it; stop, resume and reset it."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.catalog.runs import RunRow, create_run, ensure_pipeline, ensure_spec, get_run, live_run, move_run
from modyn_dagster.catalog.triggers import TriggerRow, fail, list_triggers, raise_attempt, reopen, unfinished_trigger
from modyn_dagster.data.view import DatasetView
from modyn_dagster.errors import RunError, UnknownName
from modyn_dagster.keys import ORIGIN
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.spec.load import spec_hash


def require_same_spec(platform: Platform, run: RunRow) -> None:
    """Raise ``RunError`` when a pipeline's file differs from the spec of its live run.

    Only the sensor begins the run of a changed spec. If another process did, a sensor that has not loaded the change yet
    would begin one more run with the old spec.
    """
    if run.spec_hash != spec_hash(platform.pipeline(run.pipeline)):
        raise RunError(
            f"the spec of {run.pipeline} has changed since {run.title} began; its sensor begins a new run once Dagster has "
            "loaded the change (within a minute or two), try again then"
        )


def current_live_run(platform: Platform, pipeline: str) -> RunRow:
    """Return the live run of a pipeline, after creating or succeeding it where that is due.

    The first run begins at the first batch, or after the newest with ``start: now``. When the spec's hash has changed, the
    old run ends at its cursor, once its unfinished trigger is done. A new one begins there with fresh policy state and the old
    run's last model as its previous model and its holes. A run that an operator stopped stays until it is resumed.
    """
    spec = platform.pipeline(pipeline)
    with platform.transaction() as conn:
        pipeline_id = ensure_pipeline(conn, pipeline, ensure_dataset(conn, platform.dataset(spec.dataset)).id)
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
            begin |= {"previous_model": old.previous_model, "hole_set_id": old.hole_set_id}
            if spec.promotion is not None:
                # It serves until the new run has a model.
                begin |= {"champion_model": old.champion_model or old.live_model}
        elif spec.start == "now":
            view = platform.read_view(conn, spec.dataset)
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


#: States that a run leaves only by ``pipeline resume``.
RESUMABLE = ("waiting", "stopping", "stopped")


@dataclass(frozen=True, slots=True)
class Stopped:
    """A stopped or resumed run, and its unfinished trigger.

    Attributes:
        run: the run afterwards.
        trigger: the trigger that the run finishes, or whose attempt was given up.
        holder: the Dagster run that had claimed the attempt given up.
    """

    run: RunRow
    trigger: TriggerRow | None
    holder: str | None = None


def stop_run(platform: Platform, run: RunRow, *, at_once: bool = False) -> Stopped:
    """Stop the decisions of a live run until it is resumed. Stopping a stopped run changes nothing.

    An unfinished trigger is finished first: the run is ``stopping`` until a tick sees the end of the trigger. ``at_once``
    gives its attempt up instead: the process that trains it can no longer commit, and the next attempt waits for ``resume``.

    Raises:
        RunError: the run is a replay, is over, or waits for an operator already.
    """
    with platform.transaction() as conn:
        current = get_run(conn, run.id, lock=True)
        if current.mode != "live" or current.state not in ("active", "stopping", "stopped"):
            raise RunError(f"{current.title} is {current.state}: there is nothing to stop")
        unfinished = unfinished_trigger(conn, current.id)
        if current.state == "stopped":
            return Stopped(current, unfinished)
        holder = None
        if unfinished is not None and at_once:
            holder = unfinished.dagster_run_id
            unfinished = raise_attempt(conn, unfinished, "given up: an operator stopped the run")
        state = "stopping" if unfinished is not None and not at_once else "stopped"
        stopped = current if current.state == state else move_run(conn, current, state=state)
        return Stopped(stopped, unfinished, holder)


def resume_run(platform: Platform, run: RunRow) -> Stopped:
    """Resume a waiting or stopped run, first retraining its failed or abandoned trigger.

    Raises:
        RunError: the run is in any other state.
    """
    with platform.transaction() as conn:
        current = get_run(conn, run.id, lock=True)
        if current.state not in RESUMABLE:
            raise RunError(f"{current.title} is {current.state}, there is nothing to resume")
        last = list_triggers(conn, current.id)[-1:]
        if current.state == "waiting" and last and last[0].state == "failed":
            reopen(conn, last[0], platform.spec_of(current).max_attempts)
        return Stopped(move_run(conn, current, state="active"), unfinished_trigger(conn, current.id))


@dataclass(frozen=True, slots=True)
class Reset:
    """Result of a reset.

    Attributes:
        old: the run that ended.
        given_up: its unfinished trigger, now failed.
        new: the run that begins.
        first: partition key of the first batch of the new run; None for the next one to arrive.
    """

    old: RunRow
    given_up: TriggerRow | None
    new: RunRow
    first: str | None


def reset_run(platform: Platform, pipeline: str, before: str | None = None, *, at_once: bool = False) -> Reset:
    """End the live run at its cursor and begin a new one before a batch (default: the first), with its holes and nothing else.

    The old run stays readable. An unfinished trigger is an error; ``at_once`` closes it as failed, and the process that trains
    it can no longer commit.

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
        current = live_run(conn, pipeline)
        if current is None:
            raise RunError(f"{pipeline} has no live run; the sensor triggering__{pipeline} begins one")
        require_same_spec(platform, current)
        old = get_run(conn, current.id, lock=True)
        trigger = unfinished_trigger(conn, old.id)
        if trigger is not None:
            if not at_once:
                raise RunError(
                    f"{old.title} still has to train trigger {trigger.partition_key}; let it end, or give it up (--now)"
                )
            trigger = fail(conn, trigger, "given up: an operator reset the run")
        if old.is_open:
            old = move_run(conn, old, state="ended", finished_at=sa.func.now())
        spec_id = ensure_spec(conn, pipeline_id, spec_hash(spec), spec.model_dump(mode="json", by_alias=True))
        settings = {"seed": spec.seed, "threads": spec.threads, "hole_set_id": old.hole_set_id}
        new = create_run(conn, pipeline_id=pipeline_id, spec_id=spec_id, mode="live", **settings, **begin)
    return Reset(old, trigger, new, first)


def _begin(view: DatasetView, before: str | None) -> tuple[dict[str, Any], str | None]:
    """Return the begin of a run whose first batch this is (default: the first visible one), and the batch's key."""
    keys = {batch.partition_key: batch.ordinal for batch in view.batches}
    if before is not None and before not in keys:
        raise UnknownName("batch", before, [*keys][-5:])
    first = before if before is not None else next(iter(keys), None)
    ordinal = keys[first] if first is not None else 0
    origin = view.last_key_of(ordinal - 1)
    return {"origin": origin, "cursor": origin, "last_ordinal": ordinal - 1}, first
