"""Training sets and models: what a trigger left behind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.rows import as_row
from modyn_dagster.catalog.tables import training_set


@dataclass(frozen=True, slots=True)
class TrainingSetRow:
    """A row of ``training_set``: the window, what was chosen of it, and the file. Times are those of the window."""

    trigger_id: int
    after: int
    until: int
    n_pool: int
    n_samples: int
    time_min: datetime | None
    time_max: datetime | None
    path: str
    checksum: str
    removed_at: datetime | None


def record_training_set(conn: sa.Connection, trigger_id: int, values: Mapping[str, Any]) -> TrainingSetRow:
    """Commit the training set of a trigger whose claim is held; that of a later attempt replaces it."""
    statement = insert(training_set).values(trigger_id=trigger_id, **values)
    replaced = {**values, "removed_at": None, "created_at": sa.func.now()}
    conn.execute(statement.on_conflict_do_update(index_elements=["trigger_id"], set_=replaced))
    found = find_training_set(conn, trigger_id)
    assert found is not None, "just inserted"  # noqa: S101
    return found


def find_training_set(conn: sa.Connection, trigger_id: int) -> TrainingSetRow | None:
    """The training set of a trigger, if it was selected."""
    row = conn.execute(sa.select(training_set).where(training_set.c.trigger_id == trigger_id)).one_or_none()
    return None if row is None else as_row(TrainingSetRow, row)


def mark_training_sets_removed(conn: sa.Connection, trigger_ids: Sequence[int]) -> None:
    """Note that retention removed the files; the rows stay."""
    where = training_set.c.trigger_id.in_(trigger_ids)
    conn.execute(sa.update(training_set).where(where).values(removed_at=sa.func.now()))
