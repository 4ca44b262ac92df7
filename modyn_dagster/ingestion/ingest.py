"""Ingestion of a registered batch: read, sort and commit its samples. An ingested batch is compared with its files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.batches import REPLACES, BatchRow, get_batch, mark_failed, source_files
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.deletions import lock_deletions
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.errors import ChangedBatch, DataError, UnexpectedFault
from modyn_dagster.ingestion.batches.assemble import StreamPosition, assemble
from modyn_dagster.ingestion.batches.batch_files import BatchContent, staged_shard
from modyn_dagster.ingestion.batches.commit import ReadyBatch, commit_batches
from modyn_dagster.ingestion.batches.members import involved_paths, members_of
from modyn_dagster.ingestion.batches.read_batch import BatchReader, Progress
from modyn_dagster.ingestion.containment import contained
from modyn_dagster.ingestion.deletion.delete import delete_in, sweep_replaced
from modyn_dagster.ingestion.sources.source import Source, open_source
from modyn_dagster.keys import keys_of
from modyn_dagster.spec.dataset import DatasetSpec


def require_unchanged(engine: sa.Engine, spec: DatasetSpec, source: Source, batch: BatchRow) -> None:
    """Raise ``ChangedBatch`` for the first file that is new or whose bytes differ from the ingested ones.

    A file whose samples were copied into a shard may be missing: it is not needed any more.
    """
    with transaction(engine) as conn:
        recorded = source_files(conn, batch.id)
    for file in recorded:
        try:
            checksum = source.load(file.path).checksum
        except DataError as error:
            if file.mtime_ns is None:
                continue
            raise ChangedBatch(file.path, file.checksum, error.message) from error
        if checksum != file.checksum:
            raise ChangedBatch(file.path, file.checksum, checksum)
    for path in sorted(_members(source, spec, batch) - {file.path for file in recorded}):
        raise ChangedBatch(path, "none, the file was not there", source.load(path).checksum)


def _members(source: Source, spec: DatasetSpec, batch: BatchRow) -> set[str]:
    try:
        return set(members_of(source, spec, batch.source).paths)
    except DataError:  # missing, but not needed, or it would have been refused above
        return set()


@dataclass(frozen=True, slots=True)
class IngestResult:
    """An ingested batch.

    Attributes:
        time_min, time_max: smallest and largest sample time, UTC.
        label_counts: by class name, or by the decimal class index.
        checksum: of the content, that is paths and bytes of all files read.
        already_ingested: the batch was ingested before, and its files are unchanged.
    """

    partition_key: str
    ordinal: int
    n_samples: int
    n_train: int
    time_min: datetime
    time_max: datetime
    label_counts: Mapping[str, int]
    checksum: str
    already_ingested: bool


def ingest_batch(
    engine: sa.Engine, home: Path, spec: DatasetSpec, root: str, partition_key: str, progress: Progress | None = None
) -> IngestResult:
    """Ingest a registered batch of a dataset.

    Args:
        engine: of the ``modyn`` database.
        home: folder for the index and the shard.
        spec: of the dataset.
        root: folder or URL of its files, see ``open_source``.
        partition_key: of the batch.
        progress: called after each file.

    Raises:
        DataError: the batch cannot be ingested. It is closed as failed, without leaving anything behind, and others go on.
            ``ChangedBatch``: the batch was ingested before, and a file has changed since. ``UnexpectedFault``: an exception
            that nobody foresaw; its traceback is kept with the batch.
        UnknownName: the dataset has no such batch.
        OSError, DatabaseDown, WriteFailed: may pass; the batch stays open, and none of it is visible.
    """
    source = open_source(root, spec.storage_options)
    return ingest_with(engine, home, spec, source, partition_key, BatchReader(source, spec, progress=progress))


def ingest_with(
    engine: sa.Engine, home: Path, spec: DatasetSpec, source: Source, partition_key: str, reader: BatchReader
) -> IngestResult:
    """Ingest a registered batch, as ``ingest_batch``, with a reader that may hold some files in memory."""
    while True:
        with transaction(engine) as conn:
            dataset = ensure_dataset(conn, spec)
            batch = get_batch(conn, dataset.id, partition_key)
        if batch.state == "failed":
            raise _failed_before(spec, batch)
        if batch.state == "ingested":
            require_unchanged(engine, spec, source, batch)
            return result_of(batch, already_ingested=True)
        if _ingest_open(engine, home, spec, source, dataset, batch, reader):
            with transaction(engine) as conn:
                return result_of(get_batch(conn, dataset.id, partition_key), already_ingested=False)


def _ingest_open(
    engine: sa.Engine, home: Path, spec: DatasetSpec, source: Source, dataset: DatasetRow, batch: BatchRow, reader: BatchReader
) -> bool:
    """Ingest an open batch. False when the batch or the dataset changed meanwhile: read both again."""
    # Taken before anything is read, so that a file which changes while it is read counts as changed afterwards.
    file_states = states_of(source, involved_paths(source, spec, batch.source["paths"]))
    try:
        with contained(batch.source["paths"][0]):
            content = read_content(source, spec, dataset, batch, reader)
            with (
                staged_shard(home, spec.name, batch.ordinal, content.assembled.shard) as shard,
                transaction(engine) as conn,
            ):
                if REPLACES in batch.source:
                    # First: whoever needs this lock and those of batches takes it before them.
                    lock_deletions(conn, dataset.id)
                if not commit_batches(conn, home, spec, dataset, [ReadyBatch(batch, content, shard)]):
                    return False
                _delete_replaced(conn, home, dataset, batch)
        if REPLACES in batch.source:
            sweep_replaced(engine, home, dataset)
        return True
    except DataError as error:
        traceback = error.traceback if isinstance(error, UnexpectedFault) else None
        with transaction(engine) as conn:
            mark_failed(conn, batch, str(error), file_states, traceback)
        raise


def _delete_replaced(conn: sa.Connection, home: Path, dataset: DatasetRow, batch: BatchRow) -> None:
    """Delete all samples of the batches that one replaces, in the transaction that ingests it: never both are there, or none."""
    for key in batch.source.get(REPLACES, ()):
        replaced = get_batch(conn, dataset.id, key)
        keys = keys_of(replaced.ordinal, np.arange(replaced.n_samples or 0))
        delete_in(conn, home, dataset, keys, f"replaced by {batch.partition_key}")


def read_content(source: Source, spec: DatasetSpec, dataset: DatasetRow, batch: BatchRow, reader: BatchReader) -> BatchContent:
    """Read and sort the samples of a batch. Raises ``DataError`` for the first bad file."""
    members = members_of(source, spec, batch.source)
    read = reader.read(dataset, members)
    begin, end = _place(batch.source.get("begin")), _place(batch.source.get("end"))
    assembled = assemble(read.pieces, read.columns, begin, end)
    return BatchContent(read.columns, assembled, read.files, members.paths, read.pieces[0].layout)


def states_of(source: Source, paths: Sequence[str]) -> dict[str, list[int | None] | None]:
    """Size and time of last change of each file, JSON; None for a file without a state."""
    return {path: _state(source, path) for path in paths}


def _state(source: Source, path: str) -> list[int | None] | None:
    try:
        return list(source.state(path))
    except DataError:
        return None


def _place(stored: Sequence[Any] | None) -> StreamPosition | None:
    return None if stored is None else (stored[0], stored[1], stored[2])


def _failed_before(spec: DatasetSpec, batch: BatchRow) -> DataError:
    remedy = f"deliver it again with `modyn-dagster dataset retry {spec.name} {batch.partition_key}`"
    advice = "it was delivered again as a later batch" if batch.repaired_by is not None else remedy
    return DataError(batch.source["paths"][0], f"batch {batch.partition_key!r} failed ({batch.error}); {advice}")


def result_of(batch: BatchRow, *, already_ingested: bool) -> IngestResult:
    """Result of a batch that is ingested."""
    facts = {name: getattr(batch, name) for name in ("n_samples", "n_train", "time_min", "time_max", "label_counts")}
    return IngestResult(
        batch.partition_key, batch.ordinal, **facts, checksum=str(batch.content_checksum), already_ingested=already_ingested
    )
