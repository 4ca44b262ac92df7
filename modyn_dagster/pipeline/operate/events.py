"""Events of a live run, made from the catalog: what happened since a moment, in order."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.catalog.results.evaluations import ScoredCell, cells_since
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.promotions import PromotionRow, list_promotions, served_moments
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from modyn_dagster.evaluation import anchor_of, currently_active, currently_served
from modyn_dagster.evaluation.promotion.history import is_rollback
from modyn_dagster.pipeline.event import Event, Kind
from modyn_dagster.pipeline.platform import recorded_spec
from modyn_dagster.spec.notification.notify import NotifySpec


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
    yield from _promotions(conn, run, dataset, since)
    by_ordinal = {trigger.ordinal: trigger for trigger in triggers}
    for kind, limit in _limits(notify):
        for cell in _of_live_models(conn, run, cells_since(conn, run.id, limit[0], since)):
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
        text = f"{cell.metric} {cell.value:.4g} of the live model is {kind[6:]} {limit:g} on the interval from {begin}"
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


def _of_live_models(conn: sa.Connection, run: RunRow, cells: list[ScoredCell]) -> list[ScoredCell]:
    """Select the cells of the model that was live on their interval, the newest one or the champion; others have cells too."""
    if not cells:
        return []
    spec, models = recorded_spec(run), list_models(conn, run.id)
    spans = [(as_datetime64(cell.interval_start), as_datetime64(cell.interval_end)) for cell in cells]
    anchors = np.array([anchor_of(spec.evaluation.intervals, *span) for span in spans], dtype="datetime64[us]")
    if spec.live_model == "champion":
        places = {model.ordinal: place for place, model in enumerate(models)}
        moments = served_moments(conn, run.id)
        begins = np.array([as_datetime64(time) for time, _ in moments], dtype="datetime64[us]")
        live = currently_served(begins, [places.get(ordinal, -1) for _, ordinal in moments], anchors)
    else:
        ends = np.array([as_datetime64(model.train_end) for model in models], dtype="datetime64[us]")
        live = currently_active(ends, anchors)
    return [cell for cell, i in zip(cells, live, strict=True) if i >= 0 and models[i].ordinal == cell.ordinal]


def _promotions(conn: sa.Connection, run: RunRow, dataset: str, since: datetime) -> Iterator[Event]:
    """Yield an event for every champion and every candidate that passed or was rejected since a moment, in order."""
    for change in list_promotions(conn, run.id):
        kind = _kind_of(change)
        # Promotions that were taken over from a replay have the moment of the run's begin.
        if kind is None or change.created_at < since or change.created_at <= run.created_at:
            continue
        yield Event(
            name=f"promotion {change.number}",
            kind=kind,
            pipeline=run.pipeline,
            dataset=dataset,
            run=run.id,
            trigger=change.partition_key,
            at=change.created_at,
            text=f"{run.pipeline}: {_promotion_text(kind, change)}",
            reason=change.reason,
            manual=change.manual,
        )


def _kind_of(change: PromotionRow) -> Kind | None:
    if change.state == "rejected":
        return "rejected"
    if change.state == "passed":
        return "waits_for_approval"
    if change.state != "champion" or change.before == "champion":
        return None
    return "rolled_back" if is_rollback(change) else "promoted"


def _promotion_text(kind: Kind, change: PromotionRow) -> str:
    model = f"model {change.model_hash[:12]} of trigger {change.partition_key}"
    if kind == "rejected":
        return f"{model} is rejected by {change.actor}: {change.reason}"
    if kind == "waits_for_approval":
        return f"{model} may become the champion: {change.reason}; `modyn-dagster model promote` or `reject` decides"
    if kind == "rolled_back":
        return f"{model} is the champion again, by {change.actor}: {change.reason}"
    return f"{model} is the champion, by {change.actor}: {change.reason}"
