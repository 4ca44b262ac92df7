"""Production: what one tick of ``triggering__<pipeline>`` does. It decides and commits; it never trains or measures.

The tick is short whatever the backlog, because a run has at most one unfinished trigger: the first decision that fires
ends it, and the backlog is decided after that trigger's training, in order, as a replay would. Where nothing fires it ends
after some seconds, with what it has decided committed, or where a measurement is missing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from time import monotonic
from typing import Final

from modyn_dagster.catalog.runs import RunRow, get_run, move_run
from modyn_dagster.catalog.triggers import TriggerRow, unfinished_trigger
from modyn_dagster.data.view import DatasetView
from modyn_dagster.errors import LostClaim, StaleRun
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.decide.attempts import give_up_attempt
from modyn_dagster.pipeline.decide.driver import COMMIT_SECONDS, Step, Stop, advance
from modyn_dagster.pipeline.decide.live_run import current_live_run, stop_run
from modyn_dagster.pipeline.measure.measurement_rows import RecordedMeasurements
from modyn_dagster.pipeline.platform import Platform, spec_of
from modyn_dagster.pipeline.training_stream import training_stream

#: Of a tick: what is left of the backlog then is for the next one.
_DECIDE_SECONDS: Final = 10.0

#: What a tick says of a run that decides nothing.
_RESTING: Final[Mapping[str, str]] = {
    "waiting": "waits for `modyn-dagster pipeline resume {run.pipeline}`: a trigger failed",
    "stopped": "stopped; `modyn-dagster pipeline resume {run.pipeline}` lets it go on",
    "finished": "{run.title} is finished; a changed spec begins a new run at its cursor",
}


class Attempt(Enum):
    """What became of the Dagster run that was asked to train an attempt of a trigger."""

    NONE = "none"
    GOING = "going"
    ENDED = "ended"


#: Looks up the Dagster run of (trigger partition key, attempt); ``ENDED`` includes one that vanished while it trained.
AttemptStatus = Callable[[str, int], Attempt]


@dataclass(frozen=True, slots=True)
class Unknown:
    """A point of a run that cannot be decided before something is measured with a model; ``batch`` is its partition."""

    run_id: int
    point: int
    model_hash: str
    batch: str


@dataclass(frozen=True)
class Tick:
    """What the sensor has to ask Dagster for.

    Attributes:
        run: the live run as it stands now.
        train: the trigger to train; asked for again until its Dagster run is seen.
        evaluate: whether data arrived since models were last judged and nothing has to be trained first.
        message: for the sensor's tick log.
        measure: the point at which something has to be measured; asked for again until it is.
    """

    run: RunRow
    train: TriggerRow | None
    evaluate: bool
    message: str
    measure: Unknown | None = None


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
    if run.state in _RESTING:
        return Tick(run, None, False, _RESTING[run.state].format(run=run))
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
    if run.state == "stopping":
        return Tick(stop_run(platform, run).run, None, False, "its trigger is finished, so it is stopped now")
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
    step = _advanced(platform, run, view)
    run = step.run
    if step.trigger is not None:
        trigger = step.trigger
        return Tick(run, trigger, False, f"trigger {trigger.partition_key} at key {trigger.key}: {trigger.reason}")
    if step.point is not None:
        unknown = _unknown(run, view, step.point)
        return Tick(run, None, False, f"decided up to key {run.cursor}; {unknown.batch} has to be measured first", unknown)
    if step.stop is Stop.PAUSED:
        return Tick(run, None, False, f"decided up to key {run.cursor}, the next tick goes on")
    if view.last_ordinal > run.last_ordinal:
        with platform.transaction() as conn:
            run = move_run(conn, run, last_ordinal=view.last_ordinal)
    return Tick(run, None, True, f"decided up to key {run.cursor}, batch ordinal {run.last_ordinal}")


def _advanced(platform: Platform, run: RunRow, view: DatasetView) -> Step:
    end = monotonic() + _DECIDE_SECONDS
    stream, recorded = training_stream(view, run.origin), RecordedMeasurements(platform, run)
    step = advance(platform, run, stream, recorded, measures=False)
    while step.stop is Stop.PAUSED and (left := end - monotonic()) > 0:
        step = advance(platform, step.run, stream, recorded, measures=False, seconds=min(left, COMMIT_SECONDS))
    return step


def _unknown(run: RunRow, view: DatasetView, point: int) -> Unknown:
    [batch] = [batch.partition_key for batch in view.batches if batch.ordinal == ordinal_of(point)]
    return Unknown(run.id, point, str(run.previous_model), batch)
