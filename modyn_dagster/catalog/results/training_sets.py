"""Training sets of triggers: window, file, fill, and the models that were trained on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.database.mapping import as_row
from modyn_dagster.catalog.tables import model, pipeline, pipeline_run, training_set, trigger
from modyn_dagster.catalog.triggers import partition_key

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TrainingSetRow:
    """A row of ``training_set``: the window, what was chosen of it, and the file. Times are those of the window.

    ``details`` of an online strategy: ``state`` (path and checksum), ``fill`` and ``fills`` (of R-TBS: C / n, now and
    over sample time since the last trigger), ``skipped`` (why there is too little to train on), ``variance`` (by how much
    sums of inverted chances may be off the window).
    """

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
    details: Mapping[str, Any] = field(default_factory=dict)


def record_training_set(conn: sa.Connection, trigger_id: int, values: Mapping[str, Any]) -> TrainingSetRow:
    """Commit the training set of a trigger whose claim is held; that of a later attempt replaces it."""
    statement = insert(training_set).values(trigger_id=trigger_id, **values)
    replaced = {"details": {}, **values, "removed_at": None, "created_at": sa.func.now()}
    conn.execute(statement.on_conflict_do_update(index_elements=["trigger_id"], set_=replaced))
    found = find_training_set(conn, trigger_id)
    assert found is not None, "just inserted"  # noqa: S101 - for the type checker
    return found


def find_training_set(conn: sa.Connection, trigger_id: int) -> TrainingSetRow | None:
    """The training set of a trigger, if it was selected."""
    row = conn.execute(sa.select(training_set).where(training_set.c.trigger_id == trigger_id)).one_or_none()
    return None if row is None else as_row(TrainingSetRow, row)


def list_training_sets(conn: sa.Connection, run_id: int) -> list[TrainingSetRow]:
    """List the training sets of a run in trigger order."""
    statement = sa.select(training_set).join(trigger, training_set.c.trigger_id == trigger.c.id)
    rows = conn.execute(statement.where(trigger.c.run_id == run_id).order_by(trigger.c.ordinal))
    return [as_row(TrainingSetRow, row) for row in rows]


@dataclass(frozen=True, slots=True)
class FillPoint:
    """C / n of an R-TBS at a sample time, on the way to the trigger with this ordinal."""

    ordinal: int
    time: datetime
    fill: float
    skipped: bool


def list_fills(conn: sa.Connection, run_id: int, until: int | None = None) -> list[FillPoint]:
    """How full a run's time-biased sample was, in order of time, up to a trigger; empty for other strategies."""
    statement = sa.select(trigger.c.ordinal, training_set.c.details).join(trigger, training_set.c.trigger_id == trigger.c.id)
    statement = statement.where(trigger.c.run_id == run_id, training_set.c.details.has_key("fills"))
    if until is not None:
        statement = statement.where(trigger.c.ordinal <= until)
    return [
        FillPoint(row.ordinal, _EPOCH + timedelta(microseconds=int(time)), float(fill), "skipped" in row.details)
        for row in conn.execute(statement.order_by(trigger.c.ordinal))
        for time, fill in row.details["fills"]
    ]


def mark_training_sets_removed(conn: sa.Connection, trigger_ids: Sequence[int]) -> None:
    """Note that retention removed the files; the rows stay."""
    where = training_set.c.trigger_id.in_(trigger_ids)
    conn.execute(sa.update(training_set).where(where).values(removed_at=sa.func.now()))


@dataclass(frozen=True, slots=True)
class TrainingSetUse:
    """A training set, its trigger, and the model that was trained on it, if it was.

    Attributes:
        after, until: the window ``(after, until]`` it was selected from.
        path, checksum: of its file, relative to the home folder.
        model_hash: None where the trigger is not trained.
        previous_hash: the model that this one started from.
    """

    pipeline: str
    mode: str
    run_id: int
    ordinal: int
    state: str
    after: int
    until: int
    n_samples: int
    path: str
    checksum: str
    model_hash: str | None
    previous_hash: str | None

    @property
    def partition_key(self) -> str:
        """Of the trigger assets in Dagster."""
        return partition_key(self.run_id, self.ordinal)


def training_sets_of(conn: sa.Connection, dataset_id: int) -> list[TrainingSetUse]:
    """Every training set that was selected from a dataset, in the order of their triggers."""
    statement = (
        sa.select(
            training_set,
            pipeline.c.name.label("pipeline"),
            pipeline_run.c.mode,
            trigger.c.run_id,
            trigger.c.ordinal,
            trigger.c.state,
            model.c.hash.label("model_hash"),
            model.c.previous_hash,
        )
        .join(trigger, training_set.c.trigger_id == trigger.c.id)
        .join(pipeline_run, trigger.c.run_id == pipeline_run.c.id)
        .join(pipeline, pipeline_run.c.pipeline_id == pipeline.c.id)
        .outerjoin(model, model.c.trigger_id == trigger.c.id)
        .where(pipeline.c.dataset_id == dataset_id)
        .order_by(trigger.c.id)
    )
    return [as_row(TrainingSetUse, row) for row in conn.execute(statement)]
