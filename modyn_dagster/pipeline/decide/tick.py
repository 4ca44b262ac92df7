"""Tick of production: decide and commit, without training or measuring.

The sensor ``triggering__<pipeline>`` calls it, and a training run that ends, which may take the next trigger itself.

A tick is short whatever the backlog, because a run has at most one unfinished trigger. The first decision that fires ends the
tick, and the backlog is decided after that trigger's training, in order, as in a replay. Where nothing fires, the tick ends
after some seconds or at a missing measurement, with its decisions committed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from modyn_dagster.catalog.runs import RunRow, move_run
from modyn_dagster.catalog.triggers import TriggerRow, unfinished_trigger
from modyn_dagster.data.view import DatasetView
from modyn_dagster.errors import LostClaim, StaleRun
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.decide.attempts import give_up_attempt
from modyn_dagster.pipeline.decide.driver import Stop, advance_while_paused
from modyn_dagster.pipeline.decide.live_run import current_live_run, stop_run
from modyn_dagster.pipeline.measure.measurement_rows import RecordedMeasurements
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.promotion.gate_walk import decidable, last_decided, last_look
from modyn_dagster.pipeline.training_stream import training_stream

#: Longest tick; the next one continues with the rest of the backlog.
_DECIDE_SECONDS: Final = 10.0

#: Message of a tick by the state of a run that decides nothing.
_RESTING: Final[Mapping[str, str]] = {
    "waiting": "waits for `modyn-dagster pipeline resume {run.pipeline}`: a trigger failed",
    "stopped": "stopped; `modyn-dagster pipeline resume {run.pipeline}` lets it go on",
    "finished": "{run.title} is finished; a changed spec begins a new run at its cursor",
}


class Attempt(Enum):
    """State of the Dagster run that was requested for an attempt of a trigger."""

    NONE = "none"
    GOING = "going"
    ENDED = "ended"


#: Looks up the Dagster run of a trigger's current attempt; ``ENDED`` includes one that vanished while it trained.
AttemptStatus = Callable[[TriggerRow], Attempt]


@dataclass(frozen=True, slots=True)
class MissingMeasurement:
    """A point of a run that cannot be decided before a measurement with a model; ``batch`` is its partition."""

    run_id: int
    point: int
    model_hash: str
    batch: str


@dataclass(frozen=True)
class Tick:
    """Result of a tick: the runs that the sensor has to request from Dagster.

    Attributes:
        run: the live run afterwards.
        train: the trigger to train; requested again until its Dagster run exists.
        evaluate: whether data arrived since the last evaluation and nothing has to be trained first.
        message: for the sensor's tick log.
        measure: the point with a missing measurement; requested again until it is recorded.
        looks: whether the gate of promotions has decided batches to look at, which an evaluation does.
    """

    run: RunRow
    train: TriggerRow | None
    evaluate: bool
    message: str
    measure: MissingMeasurement | None = None
    looks: bool = False


def tick(platform: Platform, pipeline: str, attempt_status: AttemptStatus) -> Tick:
    """Advance the live run as far as possible without training.

    Two simultaneous ticks are safe: one of them loses the compare-and-set and reports nothing to do.
    """
    return tick_run(platform, current_live_run(platform, pipeline), attempt_status)


def tick_run(platform: Platform, run: RunRow, attempt_status: AttemptStatus) -> Tick:
    """Advance a live run as ``tick`` does, without beginning the run of a changed spec: that is left to the sensor."""
    try:
        return _tick(platform, run, attempt_status)
    except (StaleRun, LostClaim) as error:
        return Tick(run, None, False, str(error))


def _tick(platform: Platform, run: RunRow, attempt_status: AttemptStatus) -> Tick:
    if run.state in _RESTING:
        return Tick(run, None, False, _RESTING[run.state].format(run=run))
    with platform.transaction() as conn:
        unfinished = unfinished_trigger(conn, run.id)
    if unfinished is not None:
        run, trigger = _settle_attempt(platform, run, unfinished, attempt_status)
        if trigger.state == "training":
            return Tick(run, None, False, f"trigger {trigger.partition_key} is training (attempt {trigger.attempt})")
        if trigger.state == "pending":
            return Tick(run, trigger, False, f"trigger {trigger.partition_key}, attempt {trigger.attempt}: {trigger.reason}")
        if run.state == "waiting":
            return Tick(run, None, False, f"trigger {trigger.partition_key} failed at attempt {trigger.attempt}: {trigger.error}")
    if run.state == "stopping":
        return Tick(stop_run(platform, run).run, None, False, "its trigger is finished, so it is stopped now")
    return _decide(platform, run)


def _settle_attempt(
    platform: Platform, run: RunRow, trigger: TriggerRow, attempt_status: AttemptStatus
) -> tuple[RunRow, TriggerRow]:
    """Give up the attempt of a Dagster run that has ended; a running one is left alone."""
    status = attempt_status(trigger)
    vanished = status is Attempt.NONE and trigger.state == "training"
    if status is not Attempt.ENDED and not vanished:
        return run, trigger
    reason = "its Dagster run vanished" if vanished else "its Dagster run ended without a commit"
    return give_up_attempt(platform, run, trigger, trigger.error or reason)


def _decide(platform: Platform, run: RunRow) -> Tick:
    with platform.transaction() as conn:
        # Never the run again: it may have moved, over a trigger that this tick has not seen.
        looked = last_look(conn, platform, run)
    newest = platform.view_of(run)
    view = decidable(platform, run, newest, looked)
    stream, recorded = training_stream(view, run.origin), RecordedMeasurements(platform, run)
    step = advance_while_paused(platform, run, stream, recorded, measures=False, seconds=_DECIDE_SECONDS)
    run = step.run
    if step.trigger is not None:
        trigger = step.trigger
        return Tick(run, trigger, False, f"trigger {trigger.partition_key} at key {trigger.key}: {trigger.reason}")
    if step.point is not None:
        missing = _missing_measurement(run, view, step.point)
        return Tick(run, None, False, f"decided up to key {run.cursor}; {missing.batch} has to be measured first", missing)
    if step.stop is Stop.PAUSED:
        return Tick(run, None, False, f"decided up to key {run.cursor}, the next tick goes on")
    if view.last_ordinal > run.last_ordinal:
        with platform.transaction() as conn:
            run = move_run(conn, run, last_ordinal=view.last_ordinal)
    message = f"decided up to key {run.cursor}, batch ordinal {run.last_ordinal}"
    if view.last_ordinal < newest.last_ordinal:
        message += "; the gate of promotions looks at it before the next one is decided"
    return Tick(run, None, True, message, looks=looked is not None and looked < last_decided(run, None))


def _missing_measurement(run: RunRow, view: DatasetView, point: int) -> MissingMeasurement:
    [batch] = view.batches_at([ordinal_of(point)])
    return MissingMeasurement(run.id, point, str(run.live_model), batch.partition_key)
