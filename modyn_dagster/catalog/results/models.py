"""Models: one row per trained trigger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.database.mapping import (
    BigInt,
    Created,
    Default,
    Mark,
    References,
    as_row,
    find_row,
    list_rows,
    table,
)
from modyn_dagster.catalog.runs import pipeline, pipeline_run
from modyn_dagster.catalog.triggers import trigger


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A row of ``model`` with the ordinal, key and run of its trigger.

    Attributes:
        train_start, train_end: smallest and largest sample time of the window, not of the chosen subset.
        architecture: names of the columns and classes it was trained on, and the facts that rebuild the module.
        losses: mean loss of each epoch.
        curve: points (step, loss) of the loss curve.
        seconds: duration of selection and training, as reported to the triggering policy.
        training: steps taken, seconds of every epoch, and the libraries, hardware and threads that decided bits.
    """

    trigger_id: Annotated[int, References("trigger.id"), Mark.PRIMARY]
    run_id: Annotated[int, Mark.JOINED]
    ordinal: Annotated[int, Mark.JOINED]
    key: Annotated[int, Mark.JOINED]
    hash: str
    previous_hash: str | None
    n_samples: BigInt
    train_start: datetime
    train_end: datetime
    architecture: Mapping[str, Any]
    losses: Sequence[float]
    curve: Sequence[tuple[int, float]]
    created_at: Created
    seconds: float | None = None
    training: Annotated[Mapping[str, Any], Default("{}")] = field(default_factory=dict)


model: Final = table("model", ModelRow, sa.Index("ix_model_hash", "hash"))

_MODEL: Final = sa.select(model, trigger.c.run_id, trigger.c.ordinal, trigger.c.key).join(
    trigger, model.c.trigger_id == trigger.c.id
)


def insert_model(conn: sa.Connection, trigger_id: int, values: Mapping[str, Any]) -> ModelRow:
    """Record the model of a trigger whose claim is held in this transaction."""
    conn.execute(insert(model).values(trigger_id=trigger_id, **values))
    return as_row(ModelRow, conn.execute(_MODEL.where(model.c.trigger_id == trigger_id)).one())


def find_model(conn: sa.Connection, trigger_id: int) -> ModelRow | None:
    """The model of a trigger, if it was trained."""
    return find_row(conn, ModelRow, _MODEL.where(model.c.trigger_id == trigger_id))


def list_models(conn: sa.Connection, run_id: int) -> list[ModelRow]:
    """Models of a run in trigger order."""
    return list_rows(conn, ModelRow, _MODEL.where(trigger.c.run_id == run_id).order_by(trigger.c.ordinal))


def live_model(conn: sa.Connection, pipeline_name: str, moment: datetime) -> ModelRow | None:
    """The live model of a pipeline at a moment: the newest one that its live runs had trained by then."""
    live = (pipeline.c.name == pipeline_name) & (pipeline_run.c.mode == "live") & (model.c.created_at <= moment)
    statement = _MODEL.join(pipeline_run, trigger.c.run_id == pipeline_run.c.id).join(pipeline)
    newest = model.c.created_at.desc(), trigger.c.id.desc()
    return find_row(conn, ModelRow, statement.where(live).order_by(*newest).limit(1))


def newest_model(conn: sa.Connection, run_id: int, model_hash: str) -> ModelRow | None:
    """The newest model with this hash: the run's own if it has one, else that of the run its first model came from."""
    newest = (trigger.c.run_id == run_id).desc(), trigger.c.id.desc()
    return find_row(conn, ModelRow, _MODEL.where(model.c.hash == model_hash).order_by(*newest).limit(1))
