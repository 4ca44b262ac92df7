"""Replacement of a batch whose files were corrected: new samples at the end of the stream in place of the old ones."""

from pathlib import Path

import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchRow, get_batch
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.registration.batches import register_replacement
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.errors import ChangedBatch, DataError, RunError
from modyn_dagster.ingestion.batches.members import involved_paths
from modyn_dagster.ingestion.ingest import IngestResult, ingest_batch, require_unchanged, states_of
from modyn_dagster.ingestion.sources.source import Source, open_source
from modyn_dagster.spec.dataset import DatasetSpec


def replaceable_batch(engine: sa.Engine, spec: DatasetSpec, root: str, partition_key: str) -> BatchRow:
    """Find an ingested batch whose files have changed since.

    Raises:
        UnknownName: the dataset has no such batch.
        RunError: the batch is not ingested, shares its files with other batches, was replaced already, or has not changed; or
            the samples of the dataset have ids, which the old ones keep.
        DataError: one of its files is missing.
    """
    if spec.id is not None:
        remedy = "delete the samples (`dataset delete`) and deliver the corrected ones with other ids as a new file"
        raise RunError(f"batch {partition_key}: samples of {spec.name} have ids, and a deleted sample keeps its own; {remedy}")
    source = open_source(root, spec.storage_options)
    with transaction(engine) as conn:
        batch = get_batch(conn, ensure_dataset(conn, spec).id, partition_key)
    if batch.state != "ingested":
        remedy = "`modyn-dagster dataset retry` delivers failed ones again"
        raise RunError(f"batch {partition_key} is {batch.state}, only ingested ones are replaced; {remedy}")
    if "import" in batch.source:
        remedy = "delete the samples (`dataset delete`) and deliver the corrected ones as a new file"
        raise RunError(f"batch {partition_key} is a slice of files that other batches share; {remedy}")
    for path, state in states_of(source, involved_paths(source, spec, batch.source["paths"])).items():
        if state is None:
            raise DataError(path, f"is missing; put the corrected file of batch {partition_key} there")
    if batch.n_deleted < (batch.n_samples or 0):
        _require_change(engine, spec, source, batch)
    return batch


def replace_batch(engine: sa.Engine, home: Path, spec: DatasetSpec, root: str, replaced: BatchRow) -> IngestResult:
    """Ingest the present files of a batch as new samples, and delete its old ones, in one transaction.

    The new batch is registered before; killed in between, the next call, import or sensor ingests it, and ends the same. A batch
    that was replaced is not replaced again: its replacement is, by its own key.

    Raises ``DataError`` when the corrected files cannot be ingested: the old samples stay, and another call tries again.
    """
    with transaction(engine) as conn:
        batch = register_replacement(conn, replaced)
    return ingest_batch(engine, home, spec, root, batch.partition_key)


def _require_change(engine: sa.Engine, spec: DatasetSpec, source: Source, batch: BatchRow) -> None:
    try:
        require_unchanged(engine, spec, source, batch)
    except ChangedBatch:
        return
    raise RunError(f"batch {batch.partition_key}: its files are those that were ingested; correct them first")
