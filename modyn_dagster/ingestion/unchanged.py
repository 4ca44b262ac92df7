"""A batch that is ingested already: its files must still be what they were."""

import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.engine import transaction
from modyn_dagster.catalog.source_files import source_files
from modyn_dagster.errors import ChangedBatch, DataError
from modyn_dagster.ingestion.members import members_of
from modyn_dagster.ingestion.source import Source
from modyn_dagster.spec.dataset import DatasetSpec


def require_unchanged(engine: sa.Engine, spec: DatasetSpec, source: Source, batch: BatchRow) -> None:
    """Raise ``ChangedBatch`` naming the first file whose bytes are not those that were ingested, or that is new.

    A file whose samples were copied into a shard may be gone: it is not needed any more.
    """
    with transaction(engine) as conn:
        recorded = source_files(conn, batch.id)
    for file in recorded:
        try:
            found = source.load(file.path).checksum
        except DataError as error:
            if file.mtime_ns is None:
                continue
            raise ChangedBatch(file.path, file.checksum, error.message) from error
        if found != file.checksum:
            raise ChangedBatch(file.path, file.checksum, found)
    for path in sorted(_members(source, spec, batch) - {file.path for file in recorded}):
        raise ChangedBatch(path, "none, the file was not there", source.load(path).checksum)


def _members(source: Source, spec: DatasetSpec, batch: BatchRow) -> set[str]:
    try:
        return set(members_of(source, spec, batch.source).paths)
    except DataError:  # gone, and nothing of it is needed, or it would have been refused above
        return set()
