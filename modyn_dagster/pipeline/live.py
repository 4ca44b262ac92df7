"""Production: what one tick of ``triggering__<pipeline>`` does. It decides and commits; it never trains or measures.

The tick is short whatever the backlog, because a run has at most one unfinished trigger: the first decision that fires
ends it, and the backlog is decided after that trigger's training, in order, as a replay would.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from modyn_dagster.catalog.runs import RunRow, get_run, move_run
from modyn_dagster.catalog.triggers import TriggerRow, unfinished_trigger
from modyn_dagster.errors import LostClaim, StaleRun
from modyn_dagster.pipeline.attempts import give_up_attempt
from modyn_dagster.pipeline.driver import advance
from modyn_dagster.pipeline.live_run import current_live_run
from modyn_dagster.pipeline.platform import Platform, spec_of


class Attempt(Enum):
    """What became of the Dagster run that was asked to train an attempt of a trigger."""

    NONE = "none"
    GOING = "going"
    ENDED = "ended"


#: Looks up the Dagster run of (trigger partition key, attempt); ``ENDED`` includes one that vanished while it trained.
AttemptStatus = Callable[[str, int], Attempt]


@dataclass(frozen=True)
class Tick:
    """What the sensor has to ask Dagster for.

    Attributes:
        run: the live run as it stands now.
        train: the trigger to train; asked for again until its Dagster run is seen.
        evaluate: whether data arrived since models were last judged and nothing has to be trained first.
        message: for the sensor's tick log.
    """

    run: RunRow
    train: TriggerRow | None
    evaluate: bool
    message: str


def tick(platform: Platform, pipeline: str, attempt_status: AttemptStatus) -> Tick:
    """Take the live run as far as it goes without training.

    Two ticks at once are safe: one of them loses the compare-and-set and reports that it had nothing to do.
    """
    run = current_live_run(platform, pipeline)
    try:
        return _tick(platform, run, attempt_status)
    except (StaleRun, LostClaim) as error:
        return Tick(run, None, False, str(error))


def _tick(platform: Platform, run: RunRow, attempt_status: AttemptStatus) -> Tick:
    if run.state == "waiting":
        return Tick(run, None, False, f"waits for `modyn-dagster pipeline resume {run.pipeline}`: a trigger failed")
    if run.state == "finished":
        return Tick(run, None, False, f"{run.title} is finished; a changed spec begins a new run at its cursor")
    with platform.transaction() as conn:
        left = unfinished_trigger(conn, run.id)
    if left is not None:
        left = _look_after(platform, run, left, attempt_status)
        if left.state == "training":
            return Tick(run, None, False, f"trigger {left.partition_key} is training (attempt {left.attempt})")
        if left.state == "pending":
            return Tick(run, left, False, f"trigger {left.partition_key}, attempt {left.attempt}: {left.reason}")
        with platform.transaction() as conn:
            run = get_run(conn, run.id)
        if run.state == "waiting":
            return Tick(run, None, False, f"trigger {left.partition_key} failed {left.attempt} times: {left.error}")
    return _decide(platform, run)


def _look_after(platform: Platform, run: RunRow, trigger: TriggerRow, attempt_status: AttemptStatus) -> TriggerRow:
    status = attempt_status(trigger.partition_key, trigger.attempt)
    vanished = status is Attempt.NONE and trigger.state == "training"
    if status is not Attempt.ENDED and not vanished:
        return trigger
    reason = "its Dagster run vanished" if vanished else "its Dagster run ended without a commit"
    return give_up_attempt(platform, run, trigger, trigger.error or reason)


def _decide(platform: Platform, run: RunRow) -> Tick:
    view = platform.view(spec_of(run).dataset)
    stream = view.stream(run.origin)
    step = advance(platform, run, stream)
    while not step.at_end and step.trigger is None:
        step = advance(platform, step.run, stream)
    if step.trigger is not None:
        trigger = step.trigger
        return Tick(step.run, trigger, False, f"trigger {trigger.partition_key} at key {trigger.key}: {trigger.reason}")
    run = step.run
    if view.last_ordinal > run.last_ordinal:
        with platform.transaction() as conn:
            run = move_run(conn, run, last_ordinal=view.last_ordinal)
    return Tick(run, None, True, f"decided up to key {run.cursor}, batch ordinal {run.last_ordinal}")
