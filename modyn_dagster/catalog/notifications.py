"""Notifications of a pipeline: one row per event and channel, written before the channel is called and after it returns."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.database.mapping import Created, Default, Mark, References, list_rows, table


@dataclass(frozen=True, slots=True)
class NotificationRow:
    """A row of ``notification``.

    Attributes:
        event: name of the event, unique in its run: ``trigger 3``, ``failed 3 attempt 6``,
            ``score 2 accuracy 2024-01-03T00:00:00+00:00``.
        hook: target of the channel: import path of the hook, origin of the webhook's address, or program of the command.
        told_at: time of the call that succeeded or was the last; None while another call is due.
        created_at: time of the first call.
        channel: ``hook``, ``webhook`` or ``command``; rows from before there were several are of the hook.
    """

    run_id: Annotated[int, References("pipeline_run.id")]
    event: str
    hook: str
    tries: int
    error: str | None
    told_at: datetime | None
    created_at: Created
    channel: Annotated[str, Mark.APPENDED, Default("hook")]


_KEY: Final = ("run_id", "event", "channel")

notification: Final = table("notification", NotificationRow)
# Afterwards: an appended column stands behind all items.
notification.append_constraint(sa.UniqueConstraint(*_KEY))


@dataclass(frozen=True, slots=True)
class Try:
    """A try that was counted: its number, from 1, and the time of the first one."""

    number: int
    first_at: datetime


def notifications(conn: sa.Connection, run_id: int) -> Mapping[tuple[str, str], NotificationRow]:
    """Notifications of a run, sent or due, by event and channel."""
    statement = sa.select(notification).where(notification.c.run_id == run_id).order_by(notification.c.id)
    return {(row.event, row.channel): row for row in list_rows(conn, NotificationRow, statement)}


def begin_try(conn: sa.Connection, run_id: int, event: str, channel: str, target: str) -> Try:
    """Count a call before it is made, so that a hook that kills its process is not called for ever."""
    key = {"run_id": run_id, "event": event, "channel": channel}
    statement = insert(notification).values(**key, hook=target, tries=1, error="it has not returned")
    again = {"tries": notification.c.tries + 1, "hook": target, "error": statement.excluded.error}
    statement = statement.on_conflict_do_update(index_elements=list(_KEY), set_=again)
    row = conn.execute(statement.returning(notification.c.tries, notification.c.created_at)).one()
    return Try(row.tries, row.created_at)


def end_try(conn: sa.Connection, run_id: int, event: str, channel: str, error: str | None, *, again: bool) -> None:
    """Record the result of a call; unless it is due ``again``, the event counts as told."""
    of = notification.c
    where = (of.run_id == run_id) & (of.event == event) & (of.channel == channel)
    told_at = sa.null() if again else sa.func.now()
    conn.execute(sa.update(notification).where(where).values(error=error, told_at=told_at))
