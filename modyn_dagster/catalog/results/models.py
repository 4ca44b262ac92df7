"""Models: one row per trained trigger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.database.mapping import as_row
from modyn_dagster.catalog.tables import model, pipeline, pipeline_run, trigger


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A row of ``model`` with the ordinal, key and run of its trigger; ``seconds`` is what its policy was told it took."""

    trigger_id: int
    run_id: int
    ordinal: int
    key: int
    hash: str
    previous_hash: str | None
    n_samples: int
    train_start: datetime
    train_end: datetime
    architecture: Mapping[str, Any]
    losses: Sequence[float]
    curve: Sequence[tuple[int, float]]
    created_at: datetime
    seconds: float | None = None
    training: Mapping[str, Any] = field(default_factory=dict)


_MODEL = sa.select(model, trigger.c.run_id, trigger.c.ordinal, trigger.c.key).join(trigger, model.c.trigger_id == trigger.c.id)


def insert_model(conn: sa.Connection, trigger_id: int, values: Mapping[str, Any]) -> ModelRow:
    """Commit the model of a trigger whose claim is held in this transaction."""
    conn.execute(insert(model).values(trigger_id=trigger_id, **values))
    return as_row(ModelRow, conn.execute(_MODEL.where(model.c.trigger_id == trigger_id)).one())


def find_model(conn: sa.Connection, trigger_id: int) -> ModelRow | None:
    """The model of a trigger, if it was trained."""
    row = conn.execute(_MODEL.where(model.c.trigger_id == trigger_id)).one_or_none()
    return None if row is None else as_row(ModelRow, row)


def list_models(conn: sa.Connection, run_id: int) -> list[ModelRow]:
    """Models of a run in trigger order."""
    rows = conn.execute(_MODEL.where(trigger.c.run_id == run_id).order_by(trigger.c.ordinal))
    return [as_row(ModelRow, row) for row in rows]


def live_model(conn: sa.Connection, pipeline_name: str, moment: datetime) -> ModelRow | None:
    """The model that a pipeline had live at a moment: the newest one its live runs had trained by then."""
    live = (pipeline.c.name == pipeline_name) & (pipeline_run.c.mode == "live") & (model.c.created_at <= moment)
    statement = _MODEL.join(pipeline_run, trigger.c.run_id == pipeline_run.c.id).join(pipeline)
    newest = model.c.created_at.desc(), trigger.c.id.desc()
    row = conn.execute(statement.where(live).order_by(*newest).limit(1)).one_or_none()
    return None if row is None else as_row(ModelRow, row)


def newest_model(conn: sa.Connection, run_id: int, model_hash: str) -> ModelRow | None:
    """The newest model with this hash: of the run where it has one, else of the run it took its first model from."""
    newest = (trigger.c.run_id == run_id).desc(), trigger.c.id.desc()
    row = conn.execute(_MODEL.where(model.c.hash == model_hash).order_by(*newest).limit(1)).one_or_none()
    return None if row is None else as_row(ModelRow, row)
