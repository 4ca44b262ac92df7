"""Training sets of triggers: window, file, fill, and the models trained on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from modyn_dagster.catalog.database.mapping import (
    BigInt,
    Default,
    Mark,
    References,
    as_row,
    created_column,
    find_row,
    list_rows,
    table,
)
from modyn_dagster.catalog.results.models import model
from modyn_dagster.catalog.runs import pipeline, pipeline_run
from modyn_dagster.catalog.triggers import partition_key, trigger

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TrainingSetRow:
    """A row of ``training_set``: the window, the number of samples chosen from it, and the file.

    Attributes:
        after, until: window ``(after, until]`` the set was selected from; range of keys that holds it, if it goes by label.
        n_pool: samples in the window.
        time_min, time_max: smallest and largest sample time of the window.
        path: file, relative to the home folder.
        details: facts about an online strategy: ``state`` (path and checksum of its file), ``fill`` and ``fills`` (C / n of
            an R-TBS, at the trigger and over sample time since the last one), ``skipped`` (reason why there is too little to
            train on), ``variance`` (of sums of inverse inclusion probabilities). Others: ``labelled_since`` (key and batch that a
            window by label begins at), ``n_unlabelled`` (samples left out for want of a label), ``n_compared`` and
            ``n_uniform`` (of ``similar_to_unlabelled``).
    """

    trigger_id: Annotated[int, References("trigger.id"), Mark.PRIMARY]
    after: BigInt
    until: BigInt
    n_pool: BigInt
    n_samples: BigInt
    time_min: datetime | None
    time_max: datetime | None
    path: str
    checksum: str
    removed_at: datetime | None
    details: Annotated[Mapping[str, Any], Default("{}")] = field(default_factory=dict)


training_set: Final = table("training_set", TrainingSetRow, created_column())


def record_training_set(conn: sa.Connection, trigger_id: int, values: Mapping[str, Any]) -> TrainingSetRow:
    """Record the training set of a trigger whose claim is held, replacing that of an earlier attempt."""
    statement = insert(training_set).values(trigger_id=trigger_id, **values)
    replaced = {"details": {}, **values, "removed_at": None, "created_at": sa.func.now()}
    statement = statement.on_conflict_do_update(index_elements=["trigger_id"], set_=replaced)
    return as_row(TrainingSetRow, conn.execute(statement.returning(training_set)).one())


def find_training_set(conn: sa.Connection, trigger_id: int) -> TrainingSetRow | None:
    """The training set of a trigger, if it was selected."""
    return find_row(conn, TrainingSetRow, sa.select(training_set).where(training_set.c.trigger_id == trigger_id))


def list_training_sets(conn: sa.Connection, run_id: int) -> list[TrainingSetRow]:
    """List the training sets of a run in trigger order."""
    statement = sa.select(training_set).join(trigger, training_set.c.trigger_id == trigger.c.id)
    rows = conn.execute(statement.where(trigger.c.run_id == run_id).order_by(trigger.c.ordinal))
    return [as_row(TrainingSetRow, row) for row in rows]


@dataclass(frozen=True, slots=True)
class FillPoint:
    """Fill C / n of an R-TBS at a sample time, between the trigger before and the trigger with this ordinal."""

    ordinal: int
    time: datetime
    fill: float
    skipped: bool


def list_fills(conn: sa.Connection, run_id: int, until: int | None = None) -> list[FillPoint]:
    """Fill of a run's time-biased sample over time, up to a trigger's ordinal; empty for other strategies."""
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
    """Record that retention removed the files; the rows stay."""
    where = training_set.c.trigger_id.in_(trigger_ids)
    conn.execute(sa.update(training_set).where(where).values(removed_at=sa.func.now()))


@dataclass(frozen=True, slots=True)
class TrainingSetUse:
    """A training set with its trigger and the model trained on it, if any.

    Attributes:
        after, until: range of keys ``(after, until]`` that holds the window the set was selected from.
        path: file, relative to the home folder.
        model_hash: None where the trigger is not trained.
        previous_hash: model that training started from.
        initial_hash: model, by its content, of the file of initial weights that training started from instead.
    """

    dataset_id: int
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
    initial_hash: str | None

    @property
    def partition_key(self) -> str:
        """Partition of the trigger assets in Dagster."""
        return partition_key(self.run_id, self.ordinal)


_USE: Final = (
    sa.select(
        training_set,
        pipeline.c.dataset_id,
        pipeline.c.name.label("pipeline"),
        pipeline_run.c.mode,
        trigger.c.run_id,
        trigger.c.ordinal,
        trigger.c.state,
        model.c.hash.label("model_hash"),
        model.c.previous_hash,
        model.c.training["initial_model"].astext.label("initial_hash"),
    )
    .join(trigger, training_set.c.trigger_id == trigger.c.id)
    .join(pipeline_run, trigger.c.run_id == pipeline_run.c.id)
    .join(pipeline, pipeline_run.c.pipeline_id == pipeline.c.id)
    .outerjoin(model, model.c.trigger_id == trigger.c.id)
    .order_by(trigger.c.id)
)


def training_sets_of(conn: sa.Connection, dataset_id: int) -> list[TrainingSetUse]:
    """Training sets that were selected from a dataset, in the order of their triggers.

    Those of runs on other datasets are among them where a training began with a file of initial weights.
    """
    began = sa.select(trigger.c.run_id).join(model, model.c.trigger_id == trigger.c.id)
    began = began.where(model.c.training.has_key("initial_model"))
    return list_rows(conn, TrainingSetUse, _USE.where((pipeline.c.dataset_id == dataset_id) | trigger.c.run_id.in_(began)))


def training_sets_of_models(conn: sa.Connection, hashes: Sequence[str]) -> list[TrainingSetUse]:
    """Training sets of some models, of all runs, in the order of their triggers."""
    return list_rows(conn, TrainingSetUse, _USE.where(model.c.hash.in_(hashes)))


def training_sets_with(conn: sa.Connection, checksum: str) -> list[TrainingSetUse]:
    """Training sets of the same samples in the same order, of all runs, in the order of their triggers."""
    return list_rows(conn, TrainingSetUse, _USE.where(training_set.c.checksum == checksum))
