"""Deletion of all rows of a pipeline or a dataset, in the caller's transaction."""

from collections.abc import Mapping
from typing import Final

import sqlalchemy as sa
from psycopg2.errors import LockNotAvailable

from modyn_dagster.catalog.batches import batch, source_file
from modyn_dagster.catalog.datasets import dataset
from modyn_dagster.catalog.decisions import decision, measurement
from modyn_dagster.catalog.deletions import deletion
from modyn_dagster.catalog.labels.label_batches import label_batch
from modyn_dagster.catalog.labels.label_files import label_file
from modyn_dagster.catalog.labels.sample_ids import sample_id
from modyn_dagster.catalog.labels.waiting import waiting_label
from modyn_dagster.catalog.notifications import notification
from modyn_dagster.catalog.removal.deletion_requests import deletion_request
from modyn_dagster.catalog.removal.hole_sets import hole_set
from modyn_dagster.catalog.results.evaluations import evaluation
from modyn_dagster.catalog.results.models import model
from modyn_dagster.catalog.results.predictions import prediction_file
from modyn_dagster.catalog.results.promotions import promotion, promotion_gate
from modyn_dagster.catalog.results.training_sets import training_set
from modyn_dagster.catalog.runs import pipeline, pipeline_run, pipeline_spec
from modyn_dagster.catalog.timings import stage_timing
from modyn_dagster.catalog.triggers import trigger
from modyn_dagster.errors import CatalogError

#: Tables whose rows belong to a trigger, children before parents.
_OF_TRIGGERS: Final = (evaluation, prediction_file, model, training_set)
#: Tables whose rows belong to a run; the triggers come last.
_OF_RUNS: Final = (promotion, promotion_gate, stage_timing, notification, measurement, decision, trigger)


def lock_pipeline(conn: sa.Connection, name: str) -> int | None:
    """Lock the row of a pipeline until the transaction ends: no run of it begins. None when the catalog has none."""
    statement = sa.select(pipeline.c.id).where(pipeline.c.name == name).with_for_update()
    found: int | None = conn.execute(statement).scalar_one_or_none()
    return found


def lock_for_removal(conn: sa.Connection, dataset_id: int) -> None:
    """Lock a dataset and its batches until the transaction ends: nothing that refers to them is added.

    Raises ``CatalogError`` when another transaction changes one of them now, rather than wait for it.
    """
    try:
        conn.execute(sa.select(dataset.c.id).where(dataset.c.id == dataset_id).with_for_update(nowait=True))
        conn.execute(sa.select(batch.c.id).where(batch.c.dataset_id == dataset_id).with_for_update(nowait=True))
    except sa.exc.OperationalError as error:
        if not isinstance(error.orig, LockNotAvailable):
            raise
        raise CatalogError("the dataset is being changed: a batch is registered or ingested; wait for it") from error


def pipelines_on(conn: sa.Connection, dataset_id: int) -> list[str]:
    """Names of the pipelines in the catalog that are on a dataset, in order."""
    statement = sa.select(pipeline.c.name).where(pipeline.c.dataset_id == dataset_id).order_by(pipeline.c.name)
    return list(conn.execute(statement).scalars())


def delete_pipeline(conn: sa.Connection, pipeline_id: int) -> Mapping[str, int]:
    """Delete a locked pipeline with its specs, runs and all their rows; returns the number of rows by table."""
    runs = sa.select(pipeline_run.c.id).where(pipeline_run.c.pipeline_id == pipeline_id)
    triggers = sa.select(trigger.c.id).where(trigger.c.run_id.in_(runs))
    deleted = {table.name: _delete(conn, table, table.c.trigger_id.in_(triggers)) for table in _OF_TRIGGERS}
    deleted |= {table.name: _delete(conn, table, table.c.run_id.in_(runs)) for table in _OF_RUNS}
    for table in (pipeline_run, pipeline_spec):
        deleted[table.name] = _delete(conn, table, table.c.pipeline_id == pipeline_id)
    deleted[pipeline.name] = _delete(conn, pipeline, pipeline.c.id == pipeline_id)
    return deleted


def delete_dataset(conn: sa.Connection, dataset_id: int) -> Mapping[str, int]:
    """Delete a locked dataset without pipelines, with its batches and samples; returns the number of rows by table."""
    # A batch that was delivered again refers to another one.
    conn.execute(sa.update(batch).where(batch.c.dataset_id == dataset_id).values(repaired_by=None))
    conn.execute(sa.update(label_batch).where(label_batch.c.dataset_id == dataset_id).values(repaired_by=None))
    of_dataset = (deletion_request, hole_set, deletion, waiting_label, label_file, label_batch, sample_id, source_file, batch)
    deleted = {table.name: _delete(conn, table, table.c.dataset_id == dataset_id) for table in of_dataset}
    deleted[dataset.name] = _delete(conn, dataset, dataset.c.id == dataset_id)
    # By a function with the rights of the schema's owner: this role may write rows only.
    conn.execute(sa.select(sa.func.drop_sample_partition(dataset_id)))
    return deleted


def _delete(conn: sa.Connection, table: sa.Table, condition: sa.ColumnElement[bool]) -> int:
    return conn.execute(sa.delete(table).where(condition)).rowcount
