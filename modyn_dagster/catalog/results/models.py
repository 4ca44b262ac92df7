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
from modyn_dagster.catalog.triggers import partition_key, trigger

#: Advisory lock on removals of models: the letters of "modl".
_LOCK: Final = 0x6D6F646C


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
        removed_at: time at which retention removed the model from its store; the row stays.
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
    removed_at: datetime | None = None


model: Final = table("model", ModelRow, sa.Index("ix_model_hash", "hash"))

_MODEL: Final = sa.select(model, trigger.c.run_id, trigger.c.ordinal, trigger.c.key).join(
    trigger, model.c.trigger_id == trigger.c.id
)


def insert_model(conn: sa.Connection, trigger_id: int, values: Mapping[str, Any]) -> ModelRow:
    """Record the model of a trigger whose claim is held in this transaction."""
    conn.execute(insert(model).values(trigger_id=trigger_id, **values))
    return as_row(ModelRow, conn.execute(_MODEL.where(model.c.trigger_id == trigger_id)).one())


def remove_model(conn: sa.Connection, trigger_id: int, model_hash: str) -> bool:
    """Remove the row of a trigger's model, in the transaction that records what becomes of it; False if it has another model."""
    where = (model.c.trigger_id == trigger_id) & (model.c.hash == model_hash)
    return conn.execute(sa.delete(model).where(where)).rowcount == 1


def find_model(conn: sa.Connection, trigger_id: int) -> ModelRow | None:
    """The model of a trigger, if it was trained."""
    return find_row(conn, ModelRow, _MODEL.where(model.c.trigger_id == trigger_id))


def list_models(conn: sa.Connection, run_id: int) -> list[ModelRow]:
    """Models of a run in trigger order."""
    return list_rows(conn, ModelRow, _MODEL.where(trigger.c.run_id == run_id).order_by(trigger.c.ordinal))


def newest_model(conn: sa.Connection, run_id: int, model_hash: str) -> ModelRow | None:
    """The newest model with this hash: the run's own if it has one, else that of the run its first model came from."""
    newest = (trigger.c.run_id == run_id).desc(), trigger.c.id.desc()
    return find_row(conn, ModelRow, _MODEL.where(model.c.hash == model_hash).order_by(*newest).limit(1))


@dataclass(frozen=True, slots=True)
class ModelUse:
    """A model that a run names, with its trigger and pipeline; ``removed_at`` where retention removed it from its store."""

    trigger_id: int
    pipeline: str
    mode: str
    run_id: int
    ordinal: int
    hash: str
    created_at: datetime
    removed_at: datetime | None

    @property
    def partition_key(self) -> str:
        """Partition of the trigger assets in Dagster."""
        return partition_key(self.run_id, self.ordinal)


def model_uses(conn: sa.Connection) -> list[ModelUse]:
    """Models of all runs of all pipelines, in the order of their triggers."""
    columns = model.c.trigger_id, model.c.hash, model.c.created_at, model.c.removed_at, trigger.c.run_id, trigger.c.ordinal
    statement = (
        sa.select(*columns, pipeline.c.name.label("pipeline"), pipeline_run.c.mode)
        .join(trigger, model.c.trigger_id == trigger.c.id)
        .join(pipeline_run, trigger.c.run_id == pipeline_run.c.id)
        .join(pipeline, pipeline_run.c.pipeline_id == pipeline.c.id)
    )
    return list_rows(conn, ModelUse, statement.order_by(trigger.c.run_id, trigger.c.ordinal))


def lock_model_removals(conn: sa.Connection) -> None:
    """Take the exclusive lock on removals of models until the transaction ends: rows that name a model are final meanwhile."""
    conn.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))


def block_model_removals(conn: sa.Connection) -> None:
    """Take the shared lock on removals of models: none begins until the transactions that hold it end."""
    conn.execute(sa.select(sa.func.pg_advisory_xact_lock_shared(_LOCK)))


def mark_models(conn: sa.Connection, trigger_ids: Sequence[int], *, removed: bool) -> None:
    """Record that retention removes models from their store, or that they stay after all; the rows stay in any case."""
    moment = sa.func.now() if removed else sa.null()
    conn.execute(sa.update(model).where(model.c.trigger_id.in_(trigger_ids)).values(removed_at=moment))
