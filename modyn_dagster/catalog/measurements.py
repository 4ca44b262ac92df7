"""Measurements: what a policy asked to be measured at a point, answered with one model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.rows import as_row
from modyn_dagster.catalog.tables import measurement


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
