"""Decisions of a run, one row per decision point, and the measurements they were taken from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.database.mapping import as_row
from modyn_dagster.catalog.tables import decision, measurement
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


@dataclass(frozen=True, slots=True)
class MeasurementRow:
    """A row of ``measurement``.

    Attributes:
        asked: digest of what was asked for.
        values: by path of the need, then by name; None where a value is undefined.
        details: by path of the need: what is worth showing.
    """

    run_id: int
    point: int
    model_hash: str
    asked: str
    values: Mapping[str, Mapping[str, float | None]]
    details: Mapping[str, Mapping[str, Any]]


def record_measurements(conn: sa.Connection, rows: Sequence[MeasurementRow]) -> None:
    """Write measurements. One that is there already gives way: it answers another question, or the same with the same values."""
    if not rows:
        return
    statement = insert(measurement)
    answer = {name: statement.excluded[name] for name in ("asked", "values", "details")}
    conn.execute(
        statement.on_conflict_do_update(index_elements=["run_id", "point", "model_hash"], set_=answer),
        [{name: getattr(row, name) for name in MeasurementRow.__slots__} for row in rows],
    )


def measurements_after(
    conn: sa.Connection, run_id: int, model_hash: str, after: int, limit: int | None = None
) -> list[MeasurementRow]:
    """What was measured with a model at the points of a run after a key, in order; the first ``limit`` of them."""
    where = (measurement.c.run_id == run_id) & (measurement.c.model_hash == model_hash) & (measurement.c.point > after)
    rows = conn.execute(sa.select(measurement).where(where).order_by(measurement.c.point).limit(limit))
    return [as_row(MeasurementRow, row) for row in rows]


def measurements_at(conn: sa.Connection, run_id: int, point: int) -> list[MeasurementRow]:
    """What was measured at one point of a run, with whichever models."""
    where = (measurement.c.run_id == run_id) & (measurement.c.point == point)
    return [as_row(MeasurementRow, row) for row in conn.execute(sa.select(measurement).where(where).order_by(measurement.c.id))]
