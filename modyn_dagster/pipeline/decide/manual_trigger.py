"""Train now: a trigger that a person makes, between two decisions of the policy; and its repetition in a replay."""

from typing import Final

from modyn_dagster.catalog.runs import RunRow, get_run, live_run, move_run
from modyn_dagster.catalog.triggers import TriggerRow, insert_trigger, list_triggers, unfinished_trigger
from modyn_dagster.errors import RunError
from modyn_dagster.keys import ORIGIN, key_of, ordinal_of
from modyn_dagster.pipeline.decide.live_run import require_same_spec
from modyn_dagster.pipeline.decide.tick import Attempt, tick
from modyn_dagster.pipeline.platform import Platform, spec_of
from modyn_dagster.pipeline.training_stream import training_stream
from modyn_dagster.triggering import Stream
from modyn_dagster.triggering.build import pipeline_policy

MANUAL: Final = "manual"


def trigger_now(platform: Platform, pipeline: str, note: str = "") -> TriggerRow:
    """Make a trigger of the live run that trains on everything decided about so far; its sensor asks for the training.

    What has arrived since the last tick is decided first, as a tick would, so that the policy's own triggers keep their
    places. The reason is ``manual``, followed by the note.

    Raises:
        RunError: nothing is new since the last trigger, another trigger is unfinished or has just fired by itself, the run is
            stopped, waits or is finished, or the sensor has not begun the run of a changed spec yet.
        StaleRun: a tick moved the run at the same moment; nothing was committed.
    """
    with platform.transaction() as conn:
        before = live_run(conn, pipeline)
    if before is not None:
        require_same_spec(platform, before)
    now = tick(platform, pipeline, lambda *_: Attempt.GOING)
    with platform.transaction() as conn:
        run = get_run(conn, now.run.id)
        left = unfinished_trigger(conn, run.id)
    if run.state != "active":
        raise RunError(f"{run.title} is {run.state}: {now.message}")
    if left is not None:
        raise RunError(
            f"{run.title} has an unfinished trigger, {left.partition_key} ({left.state}: {left.reason}); "
            "its sensor has it trained first, try again afterwards"
        )
    stream = training_stream(platform.view(spec_of(run).dataset), run.origin)
    key = decided_up_to(run, stream)
    if not _is_new(platform, run, key, stream):
        more = f"; {now.message}" if now.measure is not None else ""
        raise RunError(f"{run.title} has nothing new to train on since its last trigger{more}")
    return _make(platform, run, key, f"{MANUAL}: {note}" if note else MANUAL)


def decided_up_to(run: RunRow, stream: Stream) -> int:
    """The newest sample that nothing is left to decide about: the cursor, or the end of the last batch it was taken past."""
    seen = stream.before(key_of(run.last_ordinal + 1, 0)) if run.last_ordinal >= 0 else None
    return run.cursor if seen is None else max(run.cursor, seen)


def recorded_manual(platform: Platform, run: RunRow, ordinal: int) -> list[TriggerRow]:
    """The manual triggers in one batch that a replay repeats, in order; none where it repeats nobody's."""
    source = run.options.get("manual_of")
    if source is None:
        return []
    with platform.transaction() as conn:
        recorded = list_triggers(conn, int(source))
    return [row for row in recorded if row.manual and ordinal_of(row.key) == ordinal]


def repeat_manual(platform: Platform, run: RunRow, recorded: TriggerRow, stream: Stream) -> TriggerRow | None:
    """Make a recorded manual trigger in a replay that has decided up to its key.

    None where there is nothing new: it was made already, or the replay's own policy fired at the same place.
    """
    return _make(platform, run, recorded.key, recorded.reason) if _is_new(platform, run, recorded.key, stream) else None


def _is_new(platform: Platform, run: RunRow, key: int, stream: Stream) -> bool:
    with platform.transaction() as conn:
        last = max((row.key for row in list_triggers(conn, run.id)), default=ORIGIN)
    return stream.count(last, key) > 0


def _make(platform: Platform, run: RunRow, key: int, reason: str) -> TriggerRow:
    """One transition: the policy is told, cursor and policy state move, the trigger is there; or ``StaleRun``."""
    policy = pipeline_policy(spec_of(run))
    policy.load_state_dict(run.policy_state)
    policy.triggered(key)
    with platform.transaction() as conn:
        moved = move_run(conn, run, cursor=max(run.cursor, key), policy_state=policy.state_dict())
        return insert_trigger(conn, moved.id, key=key, point=key, reason=reason, manual=True)
