"""Triggers: pending -> training -> trained | skipped | failed, each step only while the claim holds."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.database.mapping import BigInt, Created, Default, Id, References, as_row, find_row, list_rows, table
from modyn_dagster.catalog.runs import pipeline, pipeline_run
from modyn_dagster.errors import LostClaim, UnknownName

UNFINISHED: Final = ("pending", "training")
#: Beginning of the error of a trigger whose model a deletion request has taken away.
WITHDRAWN: Final = "withdrawn: "


@dataclass(frozen=True, slots=True)
class TriggerRow:
    """A row of ``trigger``.

    Attributes:
        key: last key to train on.
        point: key whose arrival decided.
        manual: made by a person, not by the policy.
        state: ``pending``, ``training``, then ``trained``, ``skipped`` or ``failed``; ``pipeline resume`` leads from
            ``failed`` back to ``pending``.
    """

    id: Id
    run_id: Annotated[int, References("pipeline_run.id")]
    ordinal: int
    key: BigInt
    point: BigInt
    reason: str
    score: float | None
    threshold: float | None
    manual: Annotated[bool, Default(sa.false())]
    state: Annotated[str, Default("pending")]
    attempt: Annotated[int, Default("1")]
    dagster_run_id: str | None
    mlflow_run_id: str | None
    error: str | None
    created_at: Created
    finished_at: datetime | None

    @property
    def partition_key(self) -> str:
        """Partition of the trigger assets in Dagster: run id and ordinal."""
        return partition_key(self.run_id, self.ordinal)


trigger: Final = table(
    "trigger",
    TriggerRow,
    sa.UniqueConstraint("run_id", "ordinal"),
    sa.UniqueConstraint("run_id", "key"),
    sa.CheckConstraint("state in ('pending', 'training', 'trained', 'skipped', 'failed')", name="state"),
)


def partition_key(run_id: int, ordinal: int) -> str:
    """Sortable name of a trigger.

    >>> partition_key(3, 12)
    '000003-000012'
    """
    return f"{run_id:06d}-{ordinal:06d}"


def insert_trigger(conn: sa.Connection, run_id: int, **values: Any) -> TriggerRow:
    """Add a pending trigger with the next ordinal of its run; the caller holds the run's lock or moves its epoch."""
    last = sa.select(sa.func.coalesce(sa.func.max(trigger.c.ordinal) + 1, 0)).where(trigger.c.run_id == run_id)
    statement = insert(trigger).values(run_id=run_id, ordinal=last.scalar_subquery(), **values)
    return as_row(TriggerRow, conn.execute(statement.returning(trigger)).one())


def get_trigger(conn: sa.Connection, trigger_id: int, *, lock: bool = False) -> TriggerRow:
    """Read a trigger by id; ``lock`` keeps other processes from changing it until the transaction ends."""
    statement = sa.select(trigger).where(trigger.c.id == trigger_id)
    row = find_row(conn, TriggerRow, statement.with_for_update() if lock else statement)
    if row is None:
        raise UnknownName("trigger", trigger_id)
    return row


def find_trigger(conn: sa.Connection, pipeline_name: str, key: str) -> TriggerRow:
    """A trigger of a pipeline by its partition key; ``UnknownName`` says that only decisions make triggers."""
    run_id, _, ordinal = key.partition("-")
    row = None
    if run_id.isdecimal() and ordinal.isdecimal():
        statement = sa.select(trigger).join(pipeline_run, trigger.c.run_id == pipeline_run.c.id)
        statement = statement.join(pipeline, pipeline_run.c.pipeline_id == pipeline.c.id)
        where = (pipeline.c.name == pipeline_name) & (trigger.c.run_id == int(run_id)) & (trigger.c.ordinal == int(ordinal))
        row = find_row(conn, TriggerRow, statement.where(where))
    if row is None:
        raise UnknownName("trigger (only the pipeline's own decisions make them) with partition key", key)
    return row


def list_triggers(conn: sa.Connection, run_id: int, states: Sequence[str] | None = None) -> list[TriggerRow]:
    """Triggers of a run in order; all, or those in some states."""
    statement = sa.select(trigger).where(trigger.c.run_id == run_id).order_by(trigger.c.ordinal)
    if states is not None:
        statement = statement.where(trigger.c.state.in_(states))
    return list_rows(conn, TriggerRow, statement)


def unfinished_trigger(conn: sa.Connection, run_id: int) -> TriggerRow | None:
    """The one trigger of a run that is still to be trained, if any."""
    return next(iter(list_triggers(conn, run_id, UNFINISHED)), None)


def claim(conn: sa.Connection, row: TriggerRow, dagster_run_id: str) -> TriggerRow:
    """Take a pending trigger for one Dagster run; idempotent for the same one, ``LostClaim`` for any other."""
    ours = (trigger.c.state == "training") & (trigger.c.dagster_run_id == dagster_run_id)
    condition = (trigger.c.state == "pending") | ours
    return _change_attempt(conn, row, condition, state="training", dagster_run_id=dagster_run_id)


def hold(conn: sa.Connection, row: TriggerRow) -> None:
    """Keep a claim until the transaction ends; ``LostClaim`` if another process took it."""
    current = get_trigger(conn, row.id, lock=True)
    if (current.state, current.attempt, current.dagster_run_id) != ("training", row.attempt, row.dagster_run_id):
        raise LostClaim(row.partition_key, row.attempt)


def is_training(conn: sa.Connection, dataset_id: int) -> bool:
    """Tell whether any pipeline is training on a dataset."""
    runs = trigger.join(pipeline_run, pipeline_run.c.id == trigger.c.run_id)
    runs = runs.join(pipeline, pipeline.c.id == pipeline_run.c.pipeline_id)
    where = (pipeline.c.dataset_id == dataset_id) & (trigger.c.state == "training")
    return bool(conn.execute(sa.select(sa.exists(sa.select(trigger.c.id).select_from(runs).where(where)))).scalar_one())


def finish(conn: sa.Connection, row: TriggerRow, state: str, error: str | None = None) -> TriggerRow:
    """End a trigger whose claim is held in this transaction (``hold``)."""
    return _change(conn, row, state=state, error=error, finished_at=sa.func.now())


def withdraw(conn: sa.Connection, row: TriggerRow, reason: str) -> TriggerRow:
    """Make a trained trigger a skipped one, in the transaction that removes the row of its model."""
    return _change(conn, row, state="skipped", error=WITHDRAWN + reason, finished_at=sa.func.now())


def raise_attempt(conn: sa.Connection, row: TriggerRow, error: str) -> TriggerRow:
    """Abandon the current attempt; a process that still works on it can no longer commit."""
    values = {"attempt": row.attempt + 1, "state": "pending", "dagster_run_id": None, "error": error}
    return _change_attempt(conn, row, trigger.c.state.in_(UNFINISHED), **values)


def release(conn: sa.Connection, row: TriggerRow, error: str) -> TriggerRow:
    """Give the claim of an attempt back without ending the attempt; its process may claim it again, as any other may."""
    ours = (trigger.c.state == "training") & (trigger.c.dagster_run_id == row.dagster_run_id)
    return _change_attempt(conn, row, ours, state="pending", dagster_run_id=None, error=error)


def fail(conn: sa.Connection, row: TriggerRow, error: str) -> TriggerRow:
    """Close an unfinished trigger until an operator resumes it."""
    return _change_attempt(conn, row, trigger.c.state.in_(UNFINISHED), state="failed", error=error, finished_at=sa.func.now())


def reopen(conn: sa.Connection, row: TriggerRow, max_attempts: int) -> TriggerRow:
    """Give a failed trigger fresh attempts: those of the next round of ``max_attempts``."""
    first = math.ceil(row.attempt / max_attempts) * max_attempts + 1
    return _change(conn, row, state="pending", attempt=first, dagster_run_id=None, finished_at=None)


def set_mlflow_run(conn: sa.Connection, trigger_id: int, mlflow_run_id: str) -> None:
    """Record the MLflow run that shows a trigger; not a transition."""
    conn.execute(sa.update(trigger).where(trigger.c.id == trigger_id).values(mlflow_run_id=mlflow_run_id))


def forget_mlflow_runs(conn: sa.Connection, trigger_ids: Collection[int]) -> None:
    """Mark triggers as not shown in MLflow as they are now; the next sync of their run finds their runs there again."""
    stale = trigger.c.id.in_(trigger_ids) & trigger.c.mlflow_run_id.is_not(None)
    conn.execute(sa.update(trigger).where(stale).values(mlflow_run_id=None))


def untracked_triggers(conn: sa.Connection, run_id: int) -> list[TriggerRow]:
    """List the settled triggers of a run that MLflow does not show as they are, in order."""
    settled = (trigger.c.run_id == run_id) & trigger.c.state.not_in(UNFINISHED) & trigger.c.mlflow_run_id.is_(None)
    return list_rows(conn, TriggerRow, sa.select(trigger).where(settled).order_by(trigger.c.ordinal))


def _change_attempt(conn: sa.Connection, row: TriggerRow, condition: sa.ColumnElement[bool], **values: Any) -> TriggerRow:
    """Set columns while the attempt of ``row`` is current and the condition holds, else ``LostClaim``."""
    where = (trigger.c.id == row.id) & (trigger.c.attempt == row.attempt) & condition
    changed = find_row(conn, TriggerRow, sa.update(trigger).where(where).values(**values).returning(trigger))
    if changed is None:
        raise LostClaim(row.partition_key, row.attempt)
    return changed


def _change(conn: sa.Connection, row: TriggerRow, **values: Any) -> TriggerRow:
    statement = sa.update(trigger).where(trigger.c.id == row.id).values(**values)
    return as_row(TriggerRow, conn.execute(statement.returning(trigger)).one())
