"""The evaluation intervals of a run."""

from datetime import datetime

import sqlalchemy as sa

from modyn_dagster.catalog.tables import evaluation, trigger


def list_intervals(conn: sa.Connection, run_id: int) -> list[tuple[datetime, datetime]]:
    """Start and end of every interval on which some model of a run was judged, in order of time."""
    columns = (evaluation.c.interval_start, evaluation.c.interval_end)
    statement = sa.select(*columns).join(trigger).where(trigger.c.run_id == run_id).distinct().order_by(*columns)
    return [(row.interval_start, row.interval_end) for row in conn.execute(statement)]
