"""Decisions: one row per decision point of a run, fired or not, written by the transition that took it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.rows import as_row
from modyn_dagster.catalog.tables import decision
from modyn_dagster.keys import key_of


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A row of ``decision``; ``time`` is the running sample time at the point."""

    run_id: int
    point: int
    key: int
    time: datetime
    fire: bool
    reason: str
    score: float | None
    threshold: float | None
    details: Mapping[str, Any]


def record_decisions(conn: sa.Connection, rows: Sequence[DecisionRow]) -> None:
    """Write the decisions of one transition, in its transaction."""
    if rows:
        conn.execute(sa.insert(decision), [{name: getattr(row, name) for name in DecisionRow.__slots__} for row in rows])


def find_decision(conn: sa.Connection, run_id: int, point: int) -> DecisionRow | None:
    """The decision at a point; None where a person decided, or nobody."""
    where = (decision.c.run_id == run_id) & (decision.c.point == point)
    row = conn.execute(sa.select(decision).where(where)).one_or_none()
    return None if row is None else as_row(DecisionRow, row)


def list_decisions(conn: sa.Connection, run_id: int, *, until: int | None = None, newest: int | None = None) -> list[DecisionRow]:
    """Decisions of a run in order, up to a point; only the ``newest`` so many of them where that is given."""
    where = decision.c.run_id == run_id
    if until is not None:
        where &= decision.c.point <= until
    statement = sa.select(decision).where(where)
    if newest is None:
        return [as_row(DecisionRow, row) for row in conn.execute(statement.order_by(decision.c.point))]
    rows = conn.execute(statement.order_by(decision.c.point.desc()).limit(newest)).all()
    return [as_row(DecisionRow, row) for row in reversed(rows)]


def decisions_in_batch(conn: sa.Connection, run_id: int, ordinal: int) -> list[DecisionRow]:
    """Decisions of a run at points in one batch, in order."""
    inside = decision.c.point.between(key_of(ordinal, 0), key_of(ordinal + 1, 0) - 1)
    statement = sa.select(decision).where((decision.c.run_id == run_id) & inside).order_by(decision.c.point)
    return [as_row(DecisionRow, row) for row in conn.execute(statement)]


def scored_decisions(conn: sa.Connection, run_id: int) -> list[DecisionRow]:
    """Decisions of a run that were taken from a score, in order."""
    where = (decision.c.run_id == run_id) & decision.c.score.is_not(None)
    return [as_row(DecisionRow, row) for row in conn.execute(sa.select(decision).where(where).order_by(decision.c.point))]
