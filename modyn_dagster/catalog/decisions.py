"""Decisions of a run, one row per decision point, and the measurements that they were taken from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.database.mapping import (
    BigInt,
    Default,
    References,
    column_values,
    created_column,
    find_row,
    list_rows,
    table,
)
from modyn_dagster.keys import key_of


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A row of ``decision``.

    Attributes:
        point: key whose arrival decided.
        key: last key to train on.
        time: running sample time at the point.
    """

    run_id: Annotated[int, References("pipeline_run.id")]
    point: BigInt
    key: BigInt
    time: datetime
    fire: bool
    reason: str
    score: float | None
    threshold: float | None
    details: Annotated[Mapping[str, Any], Default("{}")]


decision: Final = table("decision", DecisionRow, created_column(), sa.UniqueConstraint("run_id", "point"))


def record_decisions(conn: sa.Connection, rows: Sequence[DecisionRow]) -> None:
    """Write the decisions of one transition, in its transaction."""
    if rows:
        conn.execute(sa.insert(decision), [column_values(row) for row in rows])


def find_decision(conn: sa.Connection, run_id: int, point: int) -> DecisionRow | None:
    """The policy's decision at a point; None where a person decided, or nothing was decided."""
    where = (decision.c.run_id == run_id) & (decision.c.point == point)
    return find_row(conn, DecisionRow, sa.select(decision).where(where))


def list_decisions(conn: sa.Connection, run_id: int, *, until: int | None = None, newest: int | None = None) -> list[DecisionRow]:
    """Decisions of a run in order, up to the point ``until``; only the ``newest`` so many of them where that is given."""
    where = decision.c.run_id == run_id
    if until is not None:
        where &= decision.c.point <= until
    statement = sa.select(decision).where(where)
    if newest is None:
        return list_rows(conn, DecisionRow, statement.order_by(decision.c.point))
    return list_rows(conn, DecisionRow, statement.order_by(decision.c.point.desc()).limit(newest))[::-1]


def count_decisions(conn: sa.Connection, run_id: int, since: int) -> int:
    """Count the decisions of a run at points from a key on."""
    where = (decision.c.run_id == run_id) & (decision.c.point >= since)
    return int(conn.execute(sa.select(sa.func.count()).select_from(decision).where(where)).scalar_one())


def decisions_in_batch(conn: sa.Connection, run_id: int, ordinal: int) -> list[DecisionRow]:
    """Decisions of a run at points in one batch, in order."""
    inside = decision.c.point.between(key_of(ordinal, 0), key_of(ordinal + 1, 0) - 1)
    statement = sa.select(decision).where((decision.c.run_id == run_id) & inside)
    return list_rows(conn, DecisionRow, statement.order_by(decision.c.point))


def scored_decisions(conn: sa.Connection, run_id: int) -> list[DecisionRow]:
    """Decisions of a run that were taken from a score, in order."""
    where = (decision.c.run_id == run_id) & decision.c.score.is_not(None)
    return list_rows(conn, DecisionRow, sa.select(decision).where(where).order_by(decision.c.point))


@dataclass(frozen=True, slots=True)
class MeasurementRow:
    """A row of ``measurement``.

    Attributes:
        asked: digest of the measurement's question; the values answer that question and no other.
        values: by path of the need, then by name, ``{"": {"mmd": 0.1}}``; None where a value is undefined.
        details: by path of the need, further facts to show beside the values.
    """

    run_id: Annotated[int, References("pipeline_run.id")]
    point: BigInt
    model_hash: str
    asked: Annotated[str, Default("")]
    values: Mapping[str, Mapping[str, float | None]]
    details: Annotated[Mapping[str, Mapping[str, Any]], Default("{}")]


measurement: Final = table("measurement", MeasurementRow, created_column(), sa.UniqueConstraint("run_id", "point", "model_hash"))


def record_measurements(conn: sa.Connection, rows: Sequence[MeasurementRow]) -> None:
    """Write measurements, replacing earlier ones at the same points: they answer another question, or agree."""
    if not rows:
        return
    statement = insert(measurement)
    answer = {name: statement.excluded[name] for name in ("asked", "values", "details")}
    conn.execute(
        statement.on_conflict_do_update(index_elements=["run_id", "point", "model_hash"], set_=answer),
        [column_values(row) for row in rows],
    )


def measurements_after(
    conn: sa.Connection, run_id: int, model_hash: str, after: int, limit: int | None = None
) -> list[MeasurementRow]:
    """Measurements with a model at the points of a run after a key, in order; the first ``limit`` of them."""
    where = (measurement.c.run_id == run_id) & (measurement.c.model_hash == model_hash) & (measurement.c.point > after)
    return list_rows(conn, MeasurementRow, sa.select(measurement).where(where).order_by(measurement.c.point).limit(limit))


def measurements_at(conn: sa.Connection, run_id: int, point: int) -> list[MeasurementRow]:
    """Measurements at one point of a run, with any model, in the order they were made."""
    where = (measurement.c.run_id == run_id) & (measurement.c.point == point)
    return list_rows(conn, MeasurementRow, sa.select(measurement).where(where).order_by(measurement.c.id))
