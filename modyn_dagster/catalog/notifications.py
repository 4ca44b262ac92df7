"""Notifications of a pipeline's hook: one row per event, written before the hook is called and after it returns."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.database.mapping import References, created_column, list_rows, table


@dataclass(frozen=True, slots=True)
class NotificationRow:
    """A row of ``notification``.

    Attributes:
        event: name of the event, unique in its run: ``trigger 3``, ``failed 3 attempt 6``,
            ``score 2 accuracy 2024-01-03T00:00:00+00:00``.
        told_at: time of the call that succeeded or was the last; None while another call is due.
    """

    run_id: Annotated[int, References("pipeline_run.id")]
    event: str
    hook: str
    tries: int
    error: str | None
    told_at: datetime | None


notification: Final = table("notification", NotificationRow, created_column(), sa.UniqueConstraint("run_id", "event"))


def notifications(conn: sa.Connection, run_id: int) -> Mapping[str, NotificationRow]:
    """Notifications of a run, sent or due, by event."""
    statement = sa.select(notification).where(notification.c.run_id == run_id).order_by(notification.c.id)
    return {row.event: row for row in list_rows(conn, NotificationRow, statement)}


def begin_try(conn: sa.Connection, run_id: int, event: str, hook: str) -> int:
    """Count a call before it is made, so that a hook that kills its process is not called for ever; returns the count."""
    statement = insert(notification).values(run_id=run_id, event=event, hook=hook, tries=1, error="it has not returned")
    again = {"tries": notification.c.tries + 1, "hook": hook, "error": statement.excluded.error}
    statement = statement.on_conflict_do_update(index_elements=["run_id", "event"], set_=again)
    return int(conn.execute(statement.returning(notification.c.tries)).scalar_one())


def end_try(conn: sa.Connection, run_id: int, event: str, error: str | None, *, again: bool) -> None:
    """Record the result of a call; unless it is due ``again``, the event counts as told."""
    where = (notification.c.run_id == run_id) & (notification.c.event == event)
    told_at = sa.null() if again else sa.func.now()
    conn.execute(sa.update(notification).where(where).values(error=error, told_at=told_at))
