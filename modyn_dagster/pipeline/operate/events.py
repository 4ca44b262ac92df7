"""Events of a live run, and their delivery to the hook of its pipeline: at least once, without blocking the pipeline."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.catalog.notifications import begin_try, end_try, notifications
from modyn_dagster.catalog.results.evaluations import ScoredCell, cells_since
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.runs import RunRow, list_runs
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from modyn_dagster.errors import ImportPathError, is_permanent
from modyn_dagster.evaluation import anchor_of, currently_active
from modyn_dagster.imports import import_callable
from modyn_dagster.pipeline.event import Event, Kind
from modyn_dagster.pipeline.operate.promotion_events import promotion_events
from modyn_dagster.pipeline.platform import Platform, recorded_spec
from modyn_dagster.spec.operation import NotifySpec


def events_since(conn: sa.Connection, run: RunRow, dataset: str, notify: NotifySpec, since: datetime) -> Iterator[Event]:
    """Yield the events of a run since a moment: those of triggers in order, promotions, then bad scores by interval.

    Nothing happened in a run before it began: a history that it took over from a replay is no event.
    """
    since = max(since, run.created_at)
    triggers = list_triggers(conn, run.id)
    for trigger in triggers:
        event = _TriggerEvents(run, dataset, trigger)
        if trigger.created_at >= since:
            yield event.fired()
        if trigger.state == "failed" and trigger.finished_at is not None and trigger.finished_at >= since:
            yield event.failed(trigger.finished_at)
    yield from promotion_events(conn, run, dataset, since)
    by_ordinal = {trigger.ordinal: trigger for trigger in triggers}
    for kind, limit in _limits(notify):
        for cell in _of_active_models(conn, run, cells_since(conn, run.id, limit[0], since)):
            if cell.value < limit[1] if kind == "score_below" else cell.value > limit[1]:
                yield _TriggerEvents(run, dataset, by_ordinal[cell.ordinal]).scored(kind, cell, limit[1])


class _TriggerEvents:
    """Events of one trigger of a run."""

    def __init__(self, run: RunRow, dataset: str, trigger: TriggerRow) -> None:
        self._run, self._dataset, self._trigger = run, dataset, trigger

    def fired(self) -> Event:
        trigger = self._trigger
        text = f"trigger {trigger.partition_key}: {trigger.reason}"
        scores = {"score": trigger.score, "threshold": trigger.threshold}
        return self._event("trigger", f"trigger {trigger.ordinal}", trigger.created_at, text, **scores)

    def failed(self, at: datetime) -> Event:
        trigger = self._trigger
        error = trigger.error or "unknown"
        text = f"trigger {trigger.partition_key} failed, attempt {trigger.attempt}: {error}"
        # After a resume it may fail again, with a later attempt.
        name = f"failed {trigger.ordinal} attempt {trigger.attempt}"
        return self._event("training_failed", name, at, text, error=error)

    def scored(self, kind: Kind, cell: ScoredCell, limit: float) -> Event:
        begin = f"{cell.interval_start:%Y-%m-%d %H:%M}"
        text = f"{cell.metric} {cell.value:.4g} of the active model is {kind[6:]} {limit:g} on the interval from {begin}"
        interval = (cell.interval_start, cell.interval_end)
        values = {"score": cell.value, "threshold": limit, "metric": cell.metric, "interval": interval}
        name = f"{kind} {cell.metric} {cell.interval_start.isoformat()}"
        return self._event(kind, name, cell.created_at, text, **values)

    def _event(self, kind: Kind, name: str, at: datetime, text: str, **values: Any) -> Event:
        run, trigger = self._run, self._trigger
        return Event(
            name=name,
            kind=kind,
            pipeline=run.pipeline,
            dataset=self._dataset,
            run=run.id,
            trigger=trigger.partition_key,
            at=at,
            text=f"{run.pipeline}: {text}",
            reason=trigger.reason,
            manual=trigger.manual,
            attempt=trigger.attempt,
            **values,
        )


def _limits(notify: NotifySpec) -> Iterator[tuple[Kind, tuple[str, float]]]:
    if notify.score_below is not None:
        yield "score_below", (notify.score_below.metric, notify.score_below.floor)
    if notify.score_above is not None:
        yield "score_above", (notify.score_above.metric, notify.score_above.ceiling)


def _of_active_models(conn: sa.Connection, run: RunRow, cells: list[ScoredCell]) -> list[ScoredCell]:
    """Select the cells of the model that a deployment used on their interval; older models have cells there too."""
    if not cells:
        return []
    models = list_models(conn, run.id)
    ends = np.array([as_datetime64(model.train_end) for model in models], dtype="datetime64[us]")
    block = recorded_spec(run).evaluation.intervals
    spans = [(as_datetime64(cell.interval_start), as_datetime64(cell.interval_end)) for cell in cells]
    anchors = np.array([anchor_of(block, *span) for span in spans], dtype="datetime64[us]")
    active = currently_active(ends, anchors)
    return [cell for cell, i in zip(cells, active, strict=True) if i >= 0 and models[i].ordinal == cell.ordinal]


#: Tries to deliver an event before it is given up.
MOST_TRIES: Final = 3
#: Number of live runs with undelivered events; one that has just ended may still have some.
_NEWEST_RUNS: Final = 2


@dataclass(frozen=True, slots=True)
class Delivery:
    """One try to deliver an event, and its error; ``last`` when no other try follows."""

    event: Event
    error: str | None
    last: bool


def undelivered_events(platform: Platform, pipeline: str, since: datetime) -> list[Event]:
    """List the undelivered events of a pipeline since a moment, in order; none without a hook."""
    spec = platform.pipeline(pipeline)
    if spec.notify is None:
        return []
    events = []
    with platform.transaction() as conn:
        for run in [run for run in list_runs(conn, pipeline) if run.mode == "live"][-_NEWEST_RUNS:]:
            tried = notifications(conn, run.id)
            for event in events_since(conn, run, spec.dataset, spec.notify, since):
                notification = tried.get(event.name)
                if notification is None or (notification.told_at is None and notification.tries < MOST_TRIES):
                    events.append(event)
    return events


def deliver_events(platform: Platform, pipeline: str, since: datetime) -> Iterator[Delivery]:
    """Call the hook with every undelivered event, one after the other, outside of any transaction.

    An exception of the hook is recorded and yielded, and a later call tries the event again, unless the error is permanent. A
    try is counted before the hook is called, so that a hook that ends the process is not called forever.
    """
    due = undelivered_events(platform, pipeline, since)
    notify = platform.pipeline(pipeline).notify
    if notify is None:
        return
    for event in due:
        with platform.transaction() as conn:
            tries = begin_try(conn, event.run, event.name, notify.hook)
        error = _call(pipeline, notify.hook, event)
        again = error is not None and tries < MOST_TRIES and not is_permanent(error)
        text = None if error is None else _text(error)
        with platform.transaction() as conn:
            end_try(conn, event.run, event.name, text, again=again)
        yield Delivery(event, text, not again)


def _call(pipeline: str, hook: str, event: Event) -> Exception | None:
    """Call the hook and return its error; None when it succeeds."""
    try:
        function: Callable[[Event], Any] = import_callable(hook, source=f"pipeline {pipeline}", field="notify.hook")
        function(event)
    except Exception as error:  # noqa: BLE001 - user code may raise anything; it is recorded and logged
        return error
    return None


def _text(error: Exception) -> str:
    """Text of an error of a hook; that of an import path names its class itself."""
    return str(error) if isinstance(error, ImportPathError) else f"{type(error).__name__}: {error}"
