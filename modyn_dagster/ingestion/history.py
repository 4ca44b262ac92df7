"""Bulk import: all new files of a dataset are cut into batches, registered at once and ingested in order."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from pathlib import Path

import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchRow, list_batches
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.datasets import lock_dataset, set_columns
from modyn_dagster.catalog.labels.label_batches import LabelBatchRow, list_label_batches
from modyn_dagster.catalog.registration.batches import known_paths, register, register_labels
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.batches.read_batch import BatchReader
from modyn_dagster.ingestion.discovery import announce, find_units
from modyn_dagster.ingestion.import_plan import plan_import
from modyn_dagster.ingestion.ingest import IngestResult, ingest_with
from modyn_dagster.ingestion.labels.ingest_labels import LabelIngestResult, ingest_labels
from modyn_dagster.ingestion.labels.interleave import interleaved
from modyn_dagster.ingestion.slices import Cut
from modyn_dagster.ingestion.small_batches import ingest_together, leading_group
from modyn_dagster.ingestion.sources.source import Source, open_source
from modyn_dagster.spec.dataset import DatasetSpec

#: Called with the number of batches closed so far, the total, and the result or error of the last batch.
ImportProgress = Callable[[int, int, "IngestResult | LabelIngestResult | DataError | None"], None]


@dataclass
class ImportSummary:
    """Result of an import.

    Attributes:
        ingested: results of the ingested batches, in ordinal order.
        failed: ``(partition key, error)`` of the batches closed as failed.
        labels: results of the ingested label batches, in ordinal order.
        failed_labels: as ``failed``, of label batches.
    """

    ingested: list[IngestResult] = field(default_factory=list)
    failed: list[tuple[str, DataError]] = field(default_factory=list)
    labels: list[LabelIngestResult] = field(default_factory=list)
    failed_labels: list[tuple[str, DataError]] = field(default_factory=list)

    @property
    def n_closed(self) -> int:
        """Number of batches, of samples and of labels, that are no longer open."""
        return len(self.ingested) + len(self.failed) + len(self.labels) + len(self.failed_labels)

    @property
    def n_samples(self) -> int:
        """Number of ingested samples."""
        return sum(result.n_samples for result in self.ingested)


def import_history(
    engine: sa.Engine,
    home: Path,
    spec: DatasetSpec,
    root: str,
    *,
    by: str = "file",
    label_root: str | None = None,
    progress: ImportProgress | None = None,
) -> ImportSummary:
    """Ingest all files that belong to no batch. After a kill, the next call continues with the open batches.

    Label files arrive among the batches of samples, each where the time of the stream has reached its newest label.

    Args:
        engine: of the ``modyn`` database.
        home: folder for indexes and shards.
        spec: of the dataset.
        root: folder or URL of its files.
        by: ``file`` (or directory, or manifest, by the spec's ``batches``), ``time:30d``, or ``count:5000``.
        label_root: folder or URL of the label files; None: leave labels out.
        progress: called after each batch.

    Raises:
        ConfigError: ``by`` is not of this form.
        OSError, DatabaseDown, WriteFailed: may pass; start again.
    """
    cut = Cut.parse(by)
    source = open_source(root, spec.storage_options)
    with transaction(engine) as conn:
        dataset = ensure_dataset(conn, spec)
        interrupted: list[BatchRow | LabelBatchRow] = [*list_batches(conn, dataset.id, "open")]
        if label_root is not None:
            interrupted += list_label_batches(conn, dataset.id, "open")
        known = known_paths(conn, dataset.id)
    new = [unit for unit in find_units(source, spec) if unit not in known]
    if cut.by == "file":
        columns, announcements = dataset.columns, [announce(spec, unit) for unit in new]
    else:
        plan = plan_import(source, spec, dataset, new, cut)
        columns, announcements = plan.columns, plan.announcements
    steps = interleaved(engine, source, spec, announcements, label_root)
    registered: list[BatchRow | LabelBatchRow] = []
    with transaction(engine) as conn:
        if lock_dataset(conn, dataset.id).columns is None and columns is not None:
            set_columns(conn, dataset.id, columns)
        # Once, before the first step: slices of one file lie in several steps.
        paths = known_paths(conn, dataset.id)
        for step in steps:
            registered += register(conn, dataset.id, step.samples, paths)
            registered += register_labels(conn, dataset.id, step.labels) if step.labels else []
    return ingest_in_order(engine, home, spec, source, [*interrupted, *registered], label_root or "", progress)


def ingest_in_order(
    engine: sa.Engine,
    home: Path,
    spec: DatasetSpec,
    source: Source,
    batches: Sequence[BatchRow | LabelBatchRow],
    label_root: str,
    progress: ImportProgress | None = None,
) -> ImportSummary:
    """Ingest open batches of samples and of labels in the order of their arrival, as ``ingest_open``."""
    summary = ImportSummary()

    def report(_: int, __: int, outcome: IngestResult | LabelIngestResult | DataError | None) -> None:
        if progress is not None:
            progress(summary.n_closed, len(batches), outcome)

    ordered = sorted(batches, key=lambda batch: (batch.arrival or 0, isinstance(batch, LabelBatchRow), batch.ordinal))
    for _, group in groupby(ordered, key=type):
        together = list(group)
        samples = [batch for batch in together if isinstance(batch, BatchRow)]
        if samples:
            ingest_open(engine, home, spec, source, samples, report, summary)
        for batch in together:
            if isinstance(batch, LabelBatchRow):
                report(0, 0, _ingest_labels(engine, home, spec, label_root, batch.partition_key, summary))
    return summary


def _ingest_labels(
    engine: sa.Engine, home: Path, spec: DatasetSpec, root: str, partition_key: str, summary: ImportSummary
) -> LabelIngestResult | DataError:
    try:
        result = ingest_labels(engine, home, spec, root, partition_key)
    except DataError as error:
        summary.failed_labels.append((partition_key, error))
        return error
    summary.labels.append(result)
    return result


def ingest_open(
    engine: sa.Engine,
    home: Path,
    spec: DatasetSpec,
    source: Source,
    batches: Sequence[BatchRow],
    progress: ImportProgress | None = None,
    summary: ImportSummary | None = None,
) -> ImportSummary:
    """Ingest open batches in ordinal order, small ones together. A batch that fails is closed, and the others go on.

    ``summary`` gets the results, and is returned; None: a new one.
    """
    shared = Counter(path for batch in batches for path in batch.source.get("files", ()))
    reader = BatchReader(source, spec, uses=shared)
    summary = ImportSummary() if summary is None else summary
    rest = batches
    while rest:
        group = leading_group(source, spec, rest)
        together = ingest_together(engine, home, spec, source, reader, group) if len(group) > 1 else None
        # A bad batch goes alone, and so do all where another process interferes.
        alone = group if together is None else group[len(together) :][:1]
        outcomes = chain(together or (), (_ingest_alone(engine, home, spec, source, batch, reader) for batch in alone))
        for batch, outcome in zip(rest, outcomes, strict=False):
            if isinstance(outcome, DataError):
                summary.failed.append((batch.partition_key, outcome))
            else:
                summary.ingested.append(outcome)
            if progress is not None:
                progress(len(summary.ingested) + len(summary.failed), len(batches), outcome)
        rest = rest[len(together or ()) + len(alone) :]
    return summary


def _ingest_alone(
    engine: sa.Engine, home: Path, spec: DatasetSpec, source: Source, batch: BatchRow, reader: BatchReader
) -> IngestResult | DataError:
    try:
        return ingest_with(engine, home, spec, source, batch.partition_key, reader)
    except DataError as error:
        return error
