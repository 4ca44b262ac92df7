"""Predictions and evaluations of models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.rows import as_row
from modyn_dagster.catalog.tables import evaluation, prediction_file, trigger


@dataclass(frozen=True, slots=True)
class PredictionFileRow:
    """A row of ``prediction_file``: outputs for the evaluation samples of ``first_key .. last_key``, both included."""

    id: int
    trigger_id: int
    model_hash: str
    first_key: int
    last_key: int
    n_samples: int
    path: str
    checksum: str
    removed_at: datetime | None


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """A row of ``evaluation`` with the ordinal of its trigger.

    ``n_samples`` were judged; ``n_deleted`` of the interval's samples were deleted by then.
    """

    trigger_id: int
    ordinal: int
    interval_start: datetime
    interval_end: datetime
    metric: str
    n_samples: int
    value: float | None
    undefined: str | None
    seen_in_training: bool
    n_deleted: int = 0


@dataclass(frozen=True, slots=True)
class ScoredCell:
    """A defined value of one metric: which trigger's model, where, and when it was first scored."""

    ordinal: int
    interval_start: datetime
    interval_end: datetime
    metric: str
    value: float
    created_at: datetime


def record_predictions(conn: sa.Connection, values: Mapping[str, Any]) -> None:
    """Commit a prediction file; predicting the same keys again gives the same bytes, so the first row stays."""
    conn.execute(insert(prediction_file).values(**values).on_conflict_do_nothing())


def list_predictions(conn: sa.Connection, trigger_id: int) -> list[PredictionFileRow]:
    """Prediction files of a trigger's model in key order."""
    where = prediction_file.c.trigger_id == trigger_id
    rows = conn.execute(sa.select(prediction_file).where(where).order_by(prediction_file.c.first_key))
    return [as_row(PredictionFileRow, row) for row in rows]


def mark_predictions_removed(conn: sa.Connection, ids: Sequence[int]) -> None:
    """Note that retention removed the files; the rows stay."""
    conn.execute(sa.update(prediction_file).where(prediction_file.c.id.in_(ids)).values(removed_at=sa.func.now()))


def record_evaluations(conn: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write cells of the evaluation matrix; a cell that is there is scored again."""
    if not rows:
        return
    statement = insert(evaluation)
    updated = {name: statement.excluded[name] for name in ("n_samples", "n_deleted", "value", "undefined", "seen_in_training")}
    conn.execute(
        statement.on_conflict_do_update(index_elements=["trigger_id", "interval_start", "interval_end", "metric"], set_=updated),
        list(rows),
    )


def list_evaluations(conn: sa.Connection, run_id: int, trigger_id: int | None = None) -> list[EvaluationRow]:
    """Cells of a run, or of one of its triggers, ordered by trigger, interval and metric."""
    where = trigger.c.run_id == run_id
    if trigger_id is not None:
        where &= trigger.c.id == trigger_id
    statement = sa.select(evaluation, trigger.c.ordinal).join(trigger).where(where)
    order = (trigger.c.ordinal, evaluation.c.interval_start, evaluation.c.interval_end, evaluation.c.metric)
    return [as_row(EvaluationRow, row) for row in conn.execute(statement.order_by(*order))]


def cells_since(conn: sa.Connection, run_id: int, metric: str, since: datetime) -> list[ScoredCell]:
    """Cells of a run's evaluation matrix first scored since a moment and defined, in order of their intervals."""
    statement = sa.select(evaluation, trigger.c.ordinal).join(trigger, evaluation.c.trigger_id == trigger.c.id)
    where = (trigger.c.run_id == run_id) & (evaluation.c.metric == metric) & evaluation.c.value.is_not(None)
    statement = statement.where(where & (evaluation.c.created_at >= since))
    rows = conn.execute(statement.order_by(evaluation.c.interval_start, trigger.c.ordinal))
    return [as_row(ScoredCell, row) for row in rows]
