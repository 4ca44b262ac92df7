"""Prediction files of models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.database.mapping import BigInt, Default, Id, References, as_row, created_column, list_rows, table
from modyn_dagster.catalog.triggers import trigger


@dataclass(frozen=True, slots=True)
class PredictionFileRow:
    """A row of ``prediction_file``: outputs for the evaluation samples of ``first_key .. last_key``, both included.

    Attributes:
        source: dataset of the samples, and the side of its split unless it is the evaluation side; empty if not recorded.
    """

    id: Id
    trigger_id: Annotated[int, References("trigger.id")]
    model_hash: str
    first_key: BigInt
    last_key: BigInt
    n_samples: BigInt
    path: str
    checksum: str
    removed_at: datetime | None
    source: Annotated[str, Default("")] = ""


prediction_file: Final = table(
    "prediction_file",
    PredictionFileRow,
    created_column(),
    sa.UniqueConstraint("trigger_id", "model_hash", "first_key"),
    sa.Index("ix_prediction_file_model_hash", "model_hash"),
)


def record_predictions(conn: sa.Connection, values: Mapping[str, Any]) -> None:
    """Record a prediction file; predicting the same keys again gives the same bytes, so the first row stays."""
    conn.execute(insert(prediction_file).values(**values).on_conflict_do_nothing())


def list_predictions(conn: sa.Connection, trigger_id: int, model_hash: str | None = None) -> list[PredictionFileRow]:
    """Prediction files of a trigger in key order, of one model or of all it ever had."""
    where = prediction_file.c.trigger_id == trigger_id
    if model_hash is not None:
        where &= prediction_file.c.model_hash == model_hash
    return list_rows(conn, PredictionFileRow, sa.select(prediction_file).where(where).order_by(prediction_file.c.first_key))


def predictions_of_triggers(conn: sa.Connection, trigger_ids: Sequence[int]) -> list[PredictionFileRow]:
    """List the prediction files of some triggers, of all models they ever had, in key order."""
    statement = sa.select(prediction_file).where(prediction_file.c.trigger_id.in_(trigger_ids))
    return [as_row(PredictionFileRow, row) for row in conn.execute(statement.order_by(prediction_file.c.first_key))]


def same_predictions(
    conn: sa.Connection, model_hash: str, source: str, first_key: int, last_key: int
) -> list[tuple[PredictionFileRow, int]]:
    """Prediction files of any trigger for these keys by a model with this hash, each with its run's id."""
    columns = prediction_file.c
    where = (columns.model_hash == model_hash) & (columns.source == source) & columns.removed_at.is_(None)
    where &= (columns.first_key == first_key) & (columns.last_key == last_key)
    statement = sa.select(prediction_file, trigger.c.run_id).join(trigger).where(where).order_by(columns.id)
    return [(as_row(PredictionFileRow, row), row.run_id) for row in conn.execute(statement)]


def mark_predictions_removed(conn: sa.Connection, ids: Sequence[int]) -> None:
    """Record that retention removed the files; the rows stay."""
    conn.execute(sa.update(prediction_file).where(prediction_file.c.id.in_(ids)).values(removed_at=sa.func.now()))
