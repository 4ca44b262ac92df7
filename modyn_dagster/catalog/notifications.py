"""What a pipeline's hook was told: a row per event, written before the hook is called and after it has answered."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.database.mapping import as_row
from modyn_dagster.catalog.tables import notification


@dataclass(frozen=True, slots=True)
class NotificationRow:
    """A row of ``notification``; ``told_at`` is None while the event is to be told (again)."""

    run_id: int
    event: str
    hook: str
    tries: int
    error: str | None
    told_at: datetime | None


def notifications(conn: sa.Connection, run_id: int) -> Mapping[str, NotificationRow]:
    """Everything that was told, or tried to be, of a run, by event."""
    rows = conn.execute(sa.select(notification).where(notification.c.run_id == run_id).order_by(notification.c.id))
    return {row.event: as_row(NotificationRow, row) for row in rows}


def begin_try(conn: sa.Connection, run_id: int, event: str, hook: str) -> int:
    """Count a try before it is made, so that one that kills its process is not made for ever; returns how many there were."""
    statement = insert(notification).values(run_id=run_id, event=event, hook=hook, tries=1, error="it has not returned")
    again = {"tries": notification.c.tries + 1, "hook": hook, "error": statement.excluded.error}
    statement = statement.on_conflict_do_update(index_elements=["run_id", "event"], set_=again)
    return int(conn.execute(statement.returning(notification.c.tries)).scalar_one())


def end_try(conn: sa.Connection, run_id: int, event: str, error: str | None, *, again: bool) -> None:
    """What became of a try; unless it is to be made ``again``, the event counts as told."""
    where = (notification.c.run_id == run_id) & (notification.c.event == event)
    told_at = sa.null() if again else sa.func.now()
    conn.execute(sa.update(notification).where(where).values(error=error, told_at=told_at))
