"""Telling a pipeline's hook what happened: at least once, not on every look, and never in the way of the pipeline."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from modyn_dagster.catalog.notifications import begin_try, end_try, notifications
from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.errors import ImportPathError
from modyn_dagster.imports import import_callable
from modyn_dagster.pipeline.event import Event
from modyn_dagster.pipeline.happenings import events_since
from modyn_dagster.pipeline.platform import Platform

#: An event that its hook cannot take this often is given up.
MOST_TRIES: Final = 3
#: Of the newest live runs: what ended a moment ago may still have to be told.
_RUNS: Final = 2


@dataclass(frozen=True, slots=True)
class Told:
    """A try to tell an event, and why it failed; ``last`` when there will be no other."""

    event: Event
    error: str | None
    last: bool


def untold(platform: Platform, pipeline: str, since: datetime) -> list[Event]:
    """Events since a moment that the hook of a pipeline has to be told, in order; none without a hook."""
    spec = platform.pipeline(pipeline)
    if spec.notify is None:
        return []
    found = []
    with platform.transaction() as conn:
        for run in [run for run in list_runs(conn, pipeline) if run.mode == "live"][-_RUNS:]:
            told = notifications(conn, run.id)
            for event in events_since(conn, run, spec.dataset, spec.notify, since):
                known = told.get(event.name)
                if known is None or (known.told_at is None and known.tries < MOST_TRIES):
                    found.append(event)
    return found


def tell(platform: Platform, pipeline: str, since: datetime) -> Iterator[Told]:
    """Call the hook with every event that is due, one after the other, outside of any transaction.

    Whatever it raises is recorded and yielded; the event is then tried again by a later call. A try is counted before it is
    made, so that one that ends the process is not made for ever.
    """
    due = untold(platform, pipeline, since)
    notify = platform.pipeline(pipeline).notify
    if notify is None:
        return
    for event in due:
        with platform.transaction() as conn:
            tries = begin_try(conn, event.run, event.name, notify.hook)
        error = _call(pipeline, notify.hook, event)
        again = error is not None and tries < MOST_TRIES
        with platform.transaction() as conn:
            end_try(conn, event.run, event.name, error, again=again)
        yield Told(event, error, not again)


def _call(pipeline: str, hook: str, event: Event) -> str | None:
    """Why the hook failed; None when it did not."""
    try:
        function: Callable[[Event], Any] = import_callable(hook, source=f"pipeline {pipeline}", field="notify.hook")
        function(event)
    except ImportPathError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - user code may raise anything; it is recorded and logged
        return f"{type(error).__name__}: {error}"
    return None
