"""Ingestion of a registered label batch. One that was ingested is compared with its files."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.labels.label_batches import (
    LabelBatchRow,
    first_open_label_batch,
    get_label_batch,
    mark_labels_failed,
)
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.errors import ChangedBatch, DataError, UnexpectedFault
from modyn_dagster.ingestion.batches.members import involved_paths
from modyn_dagster.ingestion.containment import contained
from modyn_dagster.ingestion.ingest import states_of
from modyn_dagster.ingestion.labels.commit_labels import ReadyLabels, commit_labels, follows_arrivals
from modyn_dagster.ingestion.labels.read_labels import read_labels
from modyn_dagster.ingestion.sources.source import Source, open_source
from modyn_dagster.spec.dataset import DatasetSpec


@dataclass(frozen=True, slots=True)
class LabelIngestResult:
    """An ingested label batch.

    Attributes:
        n_labels: rows, of which ``n_known`` have their sample and ``n_waiting`` wait for it.
        already_ingested: it was ingested before, and its files are unchanged.
    """

    partition_key: str
    n_labels: int
    n_known: int
    n_waiting: int
    already_ingested: bool


def ingest_labels(engine: sa.Engine, home: Path, spec: DatasetSpec, root: str, partition_key: str) -> LabelIngestResult:
    """Ingest a registered label batch of a dataset.

    Where labels bring the names of classes, the open label batches that arrived before it are ingested first.

    Args:
        engine: of the ``modyn`` database.
        home: folder for label files.
        spec: of the dataset.
        root: folder or URL of the label files.
        partition_key: of the label batch.

    Raises:
        DataError: the batch cannot be ingested; it is closed as failed, and others go on. ``ChangedBatch``: it was ingested
            before, and a file has changed since.
        UnknownName: the dataset has no such label batch.
        OSError, DatabaseDown, WriteFailed: may pass; the batch stays open, and none of it is visible.
    """
    source = open_source(root, spec.storage_options)
    while True:
        with transaction(engine) as conn:
            dataset = ensure_dataset(conn, spec)
            batch = get_label_batch(conn, dataset.id, partition_key)
            first = first_open_label_batch(conn, dataset.id)
        if batch.state == "failed":
            raise _failed_before(spec, batch)
        if batch.state == "ingested":
            _require_unchanged(source, batch)
            return _result(batch, already_ingested=True)
        if follows_arrivals(spec) and first is not None and first.id != batch.id:
            # A bad one is closed as failed; whoever asks for it is told.
            with suppress(DataError):
                ingest_labels(engine, home, spec, root, first.partition_key)
            continue
        if _ingest_open(engine, home, spec, source, dataset, batch):
            with transaction(engine) as conn:
                return _result(get_label_batch(conn, dataset.id, partition_key), already_ingested=False)


def _ingest_open(
    engine: sa.Engine, home: Path, spec: DatasetSpec, source: Source, dataset: DatasetRow, batch: LabelBatchRow
) -> bool:
    """Ingest an open label batch. False when the batch or the dataset changed meanwhile: read both again."""
    # Taken before anything is read, so that a file which changes while it is read counts as changed afterwards.
    file_states = states_of(source, involved_paths(source, spec.label_rows(), batch.source["paths"]))
    now = np.datetime64(datetime.now(UTC).replace(tzinfo=None), "us")
    try:
        with contained(batch.source["paths"][0]):
            ready = ReadyLabels.of(read_labels(source, spec, dataset, batch, now))
            with transaction(engine) as conn:
                return commit_labels(conn, home, spec, dataset, batch, ready)
    except DataError as error:
        traceback = error.traceback if isinstance(error, UnexpectedFault) else None
        with transaction(engine) as conn:
            mark_labels_failed(conn, batch, str(error), file_states, traceback)
        raise


def _require_unchanged(source: Source, batch: LabelBatchRow) -> None:
    """Raise ``ChangedBatch`` for a file that is there with other bytes; a missing one is not needed any more."""
    for path, checksum in (batch.checksums or {}).items():
        try:
            now = source.load(path).checksum
        except DataError:
            continue
        if now != checksum:
            raise ChangedBatch(path, checksum, now)


def _failed_before(spec: DatasetSpec, batch: LabelBatchRow) -> DataError:
    remedy = f"deliver it again with `modyn-dagster dataset labels retry {spec.name} {batch.partition_key}`"
    advice = "it was delivered again as a later label batch" if batch.repaired_by is not None else remedy
    return DataError(batch.source["paths"][0], f"label batch {batch.partition_key!r} failed ({batch.error}); {advice}")


def _result(batch: LabelBatchRow, *, already_ingested: bool) -> LabelIngestResult:
    counts = (int(batch.n_rows or 0), int(batch.n_known or 0), int(batch.n_waiting or 0))
    return LabelIngestResult(batch.partition_key, *counts, already_ingested=already_ingested)
