"""Bulk import: everything that lies in a dataset's root, cut into batches, registered at once and ingested in order."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import sqlalchemy as sa

from modyn_dagster.catalog.announcements import known_paths, register
from modyn_dagster.catalog.batches import BatchRow, list_batches
from modyn_dagster.catalog.datasets import ensure_dataset, lock_dataset, set_columns
from modyn_dagster.catalog.engine import transaction
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.discovery import announce, find_units
from modyn_dagster.ingestion.ingest import IngestResult, ingest_with
from modyn_dagster.ingestion.plan import ImportPlan
from modyn_dagster.ingestion.read_batch import BatchReader
from modyn_dagster.ingestion.slices import Cut
from modyn_dagster.ingestion.source import Source, open_source
from modyn_dagster.spec.dataset import DatasetSpec

#: Called with the number of batches closed so far, their total, and the result or error of the last one.
ImportProgress = Callable[[int, int, "IngestResult | DataError | None"], None]


@dataclass
class ImportSummary:
    """What an import did.

    Attributes:
        ingested: results of the batches ingested now, in ordinal order.
        failed: ``(partition key, error)`` of the batches closed as failed now.
    """

    ingested: list[IngestResult] = field(default_factory=list)
    failed: list[tuple[str, DataError]] = field(default_factory=list)

    @property
    def n_samples(self) -> int:
        """Samples ingested now."""
        return sum(result.n_samples for result in self.ingested)


def import_history(
    engine: sa.Engine,
    home: Path,
    spec: DatasetSpec,
    root: str,
    *,
    by: str = "file",
    progress: ImportProgress | None = None,
) -> ImportSummary:
    """Ingest all files that no batch has yet. Started again after a kill it goes on with the batches that are open.

    Args:
        engine: of the ``modyn`` database.
        home: folder for indexes and shards.
        spec: of the dataset.
        root: its files.
        by: ``file`` (or directory, or manifest, as the spec's ``batches`` say), ``time:30d``, or ``count:5000``.
        progress: called after each batch.

    Raises:
        ConfigError: ``by`` has another form.
        OSError, DatabaseDown, WriteFailed: may pass; start again.
    """
    cut = Cut.parse(by)
    source = open_source(root, spec.storage_options)
    with transaction(engine) as conn:
        dataset = ensure_dataset(conn, spec)
        interrupted = list_batches(conn, dataset.id, "open")
        known = known_paths(conn, dataset.id)
    new = [unit for unit in find_units(source, spec) if unit not in known]
    if cut.by == "file":
        columns, announcements = dataset.columns, [announce(spec, unit) for unit in new]
    else:
        plan = ImportPlan(source, spec, dataset, new, cut)
        columns, announcements = plan.columns, plan.announcements
    with transaction(engine) as conn:
        if columns is not None and lock_dataset(conn, dataset.id).columns is None:
            set_columns(conn, dataset.id, columns)
        registered = register(conn, dataset.id, announcements)
    return ingest_open(engine, home, spec, source, [*interrupted, *registered], progress)


def ingest_open(
    engine: sa.Engine,
    home: Path,
    spec: DatasetSpec,
    source: Source,
    batches: Sequence[BatchRow],
    progress: ImportProgress | None = None,
) -> ImportSummary:
    """Ingest open batches in ordinal order; one that fails is closed, and the others go on."""
    shared = Counter(path for batch in batches for path in batch.source.get("files", ()))
    reader = BatchReader(source, spec, uses=shared)
    summary = ImportSummary()
    for done, batch in enumerate(batches, 1):
        outcome: IngestResult | DataError
        try:
            outcome = ingest_with(engine, home, spec, source, batch.partition_key, reader)
            summary.ingested.append(outcome)
        except DataError as error:
            outcome = error
            summary.failed.append((batch.partition_key, error))
        if progress is not None:
            progress(done, len(batches), outcome)
    return summary
