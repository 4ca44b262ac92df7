"""Ingestion of many small batches together: one transaction and one COPY, files made durable side by side."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from modyn_dagster.catalog.batches import REPLACES, BatchRow, get_batch
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.batches.batch_files import staged_shard
from modyn_dagster.ingestion.batches.commit import ReadyBatch, commit_batches
from modyn_dagster.ingestion.batches.read_batch import BatchReader
from modyn_dagster.ingestion.containment import contained
from modyn_dagster.ingestion.ingest import IngestResult, read_content, result_of
from modyn_dagster.ingestion.sources.source import Source
from modyn_dagster.spec.dataset import DatasetSpec

#: Batches and bytes of their files that are ingested together: in memory at once, and lost to a kill.
_MOST_BATCHES: Final = 64
_MOST_BYTES: Final = 8 << 20


def leading_group(source: Source, spec: DatasetSpec, batches: Sequence[BatchRow]) -> Sequence[BatchRow]:
    """The first batches that can be ingested together, at least one: each is one small file of rows that no other has."""
    if spec.batches.kind != "file" or spec.format.kind == "files":
        return batches[:1]
    left = _MOST_BYTES
    paths: set[str] = set()
    for position, batch in enumerate(batches[:_MOST_BATCHES]):
        left -= _size(source, batch)
        if left < 0 or "import" in batch.source or REPLACES in batch.source or not paths.isdisjoint(batch.source["paths"]):
            return batches[: max(1, position)]
        paths.update(batch.source["paths"])
    return batches[:_MOST_BATCHES]


def _size(source: Source, batch: BatchRow) -> int:
    try:
        return sum(source.state(path).size for path in batch.source["paths"])
    except DataError:
        # Missing, for example: whoever reads it will say so.
        return 0


def ingest_together(
    engine: sa.Engine, home: Path, spec: DatasetSpec, source: Source, reader: BatchReader, group: Sequence[BatchRow]
) -> list[IngestResult] | None:
    """Ingest the leading batches of a group in one transaction, up to the first that has to go alone.

    That is one with bad data, which is closed as failed when it is ingested alone, or the first of a dataset, whose columns it
    resolves. None, with nothing ingested, if another process has changed one of them meanwhile, or has ingested a file of theirs.

    Raises ``OSError``, ``DatabaseDown``, ``WriteFailed``, which may pass; all batches stay open.
    """
    with transaction(engine) as conn:
        dataset = ensure_dataset(conn, spec)
    if dataset.columns is None:
        return []
    ready: list[ReadyBatch] = []
    with ExitStack() as shards:
        try:
            for batch in group:
                with contained(batch.source["paths"][0]):
                    content = read_content(source, spec, dataset, batch, reader)
                    shard = shards.enter_context(staged_shard(home, spec.name, batch.ordinal, content.assembled.shard))
                ready.append(ReadyBatch(batch, content, shard))
        except DataError:
            if not ready:
                return []
        try:
            with contained(group[0].source["paths"][0]), transaction(engine) as conn:
                if not commit_batches(conn, home, spec, dataset, ready):
                    return None
                rows = [get_batch(conn, dataset.id, item.batch.partition_key) for item in ready]
        except DataError:
            return None
    return [result_of(row, already_ingested=False) for row in rows]
