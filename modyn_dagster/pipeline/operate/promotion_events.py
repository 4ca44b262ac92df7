"""Promotions, rejections and rollbacks of a live run as events for the hook of its pipeline."""

from collections.abc import Iterator
from datetime import datetime

import sqlalchemy as sa

from modyn_dagster.catalog.results.promotions import PromotionRow, list_promotions
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.evaluation.promotion.history import is_rollback
from modyn_dagster.pipeline.event import Event, Kind


def promotion_events(conn: sa.Connection, run: RunRow, dataset: str, since: datetime) -> Iterator[Event]:
    """Yield an event for every champion and every rejected candidate of a run since a moment, in order."""
    for change in list_promotions(conn, run.id):
        kind = _kind(change)
        if kind is None or change.created_at < since:
            continue
        yield Event(
            name=f"promotion {change.number}",
            kind=kind,
            pipeline=run.pipeline,
            dataset=dataset,
            run=run.id,
            trigger=change.partition_key,
            at=change.created_at,
            text=f"{run.pipeline}: {_sentence(kind, change)}",
            reason=change.reason,
            manual=change.manual,
        )


def _kind(change: PromotionRow) -> Kind | None:
    if change.state == "rejected":
        return "rejected"
    if change.state != "champion":
        return None
    return "rolled_back" if is_rollback(change) else "promoted"


def _sentence(kind: Kind, change: PromotionRow) -> str:
    model = f"model {change.model_hash[:12]} of trigger {change.partition_key}"
    if kind == "rejected":
        return f"{model} is rejected by {change.actor}: {change.reason}"
    if kind == "rolled_back":
        return f"{model} is the champion again, by {change.actor}: {change.reason}"
    return f"{model} is the champion, by {change.actor}: {change.reason}"
