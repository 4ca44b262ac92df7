"""Triggers: pending -> training -> trained | skipped | failed, each step only while the claim holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.database.mapping import as_row
from modyn_dagster.catalog.tables import pipeline, pipeline_run, trigger
from modyn_dagster.errors import LostClaim, UnknownName

UNFINISHED = ("pending", "training")


@dataclass(frozen=True, slots=True)
class TriggerRow:
    """A row of ``trigger``."""

    id: int
    run_id: int
    ordinal: int
    key: int
    point: int
    reason: str
    score: float | None
    threshold: float | None
    manual: bool
    state: str
    attempt: int
    dagster_run_id: str | None
    mlflow_run_id: str | None
    error: str | None
    created_at: datetime
    finished_at: datetime | None

    @property
    def partition_key(self) -> str:
        """Of the trigger assets in Dagster: run id and ordinal."""
        return partition_key(self.run_id, self.ordinal)


def partition_key(run_id: int, ordinal: int) -> str:
    """Sortable name of a trigger.

    >>> partition_key(3, 12)
    '000003-000012'
    """
    return f"{run_id:06d}-{ordinal:06d}"


def insert_trigger(conn: sa.Connection, run_id: int, **values: Any) -> TriggerRow:
    """A new pending trigger with the next ordinal of its run; the caller holds the run's lock or moves its epoch."""
    last = sa.select(sa.func.coalesce(sa.func.max(trigger.c.ordinal) + 1, 0)).where(trigger.c.run_id == run_id)
    statement = insert(trigger).values(run_id=run_id, ordinal=last.scalar_subquery(), **values)
    return get_trigger(conn, conn.execute(statement.returning(trigger.c.id)).scalar_one())


def get_trigger(conn: sa.Connection, trigger_id: int, *, lock: bool = False) -> TriggerRow:
    """A trigger by id."""
    statement = sa.select(trigger).where(trigger.c.id == trigger_id)
    row = conn.execute(statement.with_for_update() if lock else statement).one_or_none()
    if row is None:
        raise UnknownName("trigger", trigger_id)
    return as_row(TriggerRow, row)


def find_trigger(conn: sa.Connection, pipeline_name: str, key: str) -> TriggerRow:
    """A trigger of a pipeline by its partition key; ``UnknownName`` says that only decisions make triggers."""
    run_id, _, ordinal = key.partition("-")
    row = None
    if run_id.isdecimal() and ordinal.isdecimal():
        statement = sa.select(trigger).join(pipeline_run, trigger.c.run_id == pipeline_run.c.id)
        statement = statement.join(pipeline, pipeline_run.c.pipeline_id == pipeline.c.id)
        where = (pipeline.c.name == pipeline_name) & (trigger.c.run_id == int(run_id)) & (trigger.c.ordinal == int(ordinal))
        row = conn.execute(statement.where(where)).one_or_none()
    if row is None:
        raise UnknownName("trigger (only the pipeline's own decisions make them) with partition key", key)
    return as_row(TriggerRow, row)


def list_triggers(conn: sa.Connection, run_id: int, states: Sequence[str] | None = None) -> list[TriggerRow]:
    """Triggers of a run in order, maybe only those in some states."""
    statement = sa.select(trigger).where(trigger.c.run_id == run_id).order_by(trigger.c.ordinal)
    if states is not None:
        statement = statement.where(trigger.c.state.in_(states))
    return [as_row(TriggerRow, row) for row in conn.execute(statement)]


def unfinished_trigger(conn: sa.Connection, run_id: int) -> TriggerRow | None:
    """The one trigger of a run that is still to be trained."""
    found = list_triggers(conn, run_id, UNFINISHED)
    return found[0] if found else None


def claim(conn: sa.Connection, row: TriggerRow, dagster_run_id: str) -> TriggerRow:
    """Take a pending trigger for one Dagster run; idempotent for the same one, ``LostClaim`` for any other."""
    where = (trigger.c.id == row.id) & (trigger.c.attempt == row.attempt) & _held_or_free(dagster_run_id)
    claimed = conn.execute(sa.update(trigger).where(where).values(state="training", dagster_run_id=dagster_run_id))
    if claimed.rowcount != 1:
        raise LostClaim(row.partition_key, row.attempt)
    return get_trigger(conn, row.id)


def hold(conn: sa.Connection, row: TriggerRow) -> None:
    """Keep a claim until the transaction ends; ``LostClaim`` if it is gone."""
    now = get_trigger(conn, row.id, lock=True)
    if (now.state, now.attempt, now.dagster_run_id) != ("training", row.attempt, row.dagster_run_id):
        raise LostClaim(row.partition_key, row.attempt)


def is_training(conn: sa.Connection, dataset_id: int) -> bool:
    """Whether any pipeline trains on a dataset now."""
    runs = trigger.join(pipeline_run, pipeline_run.c.id == trigger.c.run_id)
    runs = runs.join(pipeline, pipeline.c.id == pipeline_run.c.pipeline_id)
    where = (pipeline.c.dataset_id == dataset_id) & (trigger.c.state == "training")
    found: bool = conn.execute(sa.select(sa.exists(sa.select(trigger.c.id).select_from(runs).where(where)))).scalar_one()
    return found


def finish(conn: sa.Connection, row: TriggerRow, state: str, error: str | None = None) -> TriggerRow:
    """End a trigger whose claim is held in this transaction (``hold``)."""
    return _set(conn, row, state=state, error=error, finished_at=sa.func.now())


def raise_attempt(conn: sa.Connection, row: TriggerRow, error: str) -> TriggerRow:
    """Give up the current attempt; whoever still works on it can no longer commit."""
    where = (trigger.c.id == row.id) & (trigger.c.attempt == row.attempt) & trigger.c.state.in_(UNFINISHED)
    values = {"attempt": row.attempt + 1, "state": "pending", "dagster_run_id": None, "error": error}
    if conn.execute(sa.update(trigger).where(where).values(values)).rowcount != 1:
        raise LostClaim(row.partition_key, row.attempt)
    return get_trigger(conn, row.id)


def fail(conn: sa.Connection, row: TriggerRow, error: str) -> TriggerRow:
    """Close an unfinished trigger for good, or until an operator resumes it."""
    where = (trigger.c.id == row.id) & (trigger.c.attempt == row.attempt) & trigger.c.state.in_(UNFINISHED)
    values = {"state": "failed", "error": error, "finished_at": sa.func.now()}
    if conn.execute(sa.update(trigger).where(where).values(values)).rowcount != 1:
        raise LostClaim(row.partition_key, row.attempt)
    return get_trigger(conn, row.id)


def reopen(conn: sa.Connection, row: TriggerRow) -> TriggerRow:
    """Give a failed trigger fresh attempts."""
    return _set(conn, row, state="pending", attempt=row.attempt + 1, dagster_run_id=None, finished_at=None)


def set_mlflow_run(conn: sa.Connection, trigger_id: int, mlflow_run_id: str) -> None:
    """Remember where a trigger is shown; not a transition."""
    conn.execute(sa.update(trigger).where(trigger.c.id == trigger_id).values(mlflow_run_id=mlflow_run_id))


def _held_or_free(dagster_run_id: str) -> sa.ColumnElement[bool]:
    return (trigger.c.state == "pending") | ((trigger.c.state == "training") & (trigger.c.dagster_run_id == dagster_run_id))


def _set(conn: sa.Connection, row: TriggerRow, **values: Any) -> TriggerRow:
    conn.execute(sa.update(trigger).where(trigger.c.id == row.id).values(**values))
    return get_trigger(conn, row.id)
