"""Label batches: files of labels that arrive after their samples, their states, and what was found in them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, Final

import sqlalchemy as sa

from modyn_dagster.catalog.database.failures import failed_values
from modyn_dagster.catalog.database.mapping import (
    TIME,
    BigInt,
    Default,
    Id,
    References,
    created_column,
    find_row,
    list_rows,
    table,
)
from modyn_dagster.errors import UnknownName


@dataclass(frozen=True, slots=True)
class LabelBatchRow:
    """A row of ``label_batch``; fields that ingestion measures are None before.

    Attributes:
        ordinal: position among the dataset's label batches.
        arrival: position in the sequence that label batches share with sample batches; those registered together have one.
        state: ``open``, then ``ingested`` or ``failed``; an open one holds later sample batches back from pipelines.
        source: description of what to ingest, as for sample batches.
        error: why it failed.
        repaired_by: id of the label batch that delivers a failed one again.
        n_rows: rows of its files. Each is known, waiting, or left out.
        n_known: labels of samples that were there.
        n_waiting: labels whose id named no sample then.
        known_min, known_max: first and last time at which a label was known.
        label_counts: of known labels by class name, or by the decimal class index.
        delays: number of known labels by the time between sample and label, shortest first: ``[[text, number], ...]``.
        findings: what a person should look at, by kind: number of rows, and file, row and id of the first ones.
        checksums: of the files that were read, by path.
    """

    id: Id
    dataset_id: Annotated[int, References("dataset.id")]
    ordinal: int
    arrival: int
    partition_key: str
    state: Annotated[str, Default("open")]
    source: Mapping[str, Any]
    error: str | None
    repaired_by: Annotated[int | None, References("label_batch.id")]
    n_rows: BigInt | None
    n_known: BigInt | None
    n_waiting: BigInt | None
    known_min: datetime | None
    known_max: datetime | None
    label_counts: Mapping[str, int] | None
    delays: Sequence[Sequence[Any]] | None
    findings: Mapping[str, Any] | None
    checksums: Mapping[str, str] | None


label_batch: Final = table(
    "label_batch",
    LabelBatchRow,
    created_column(),
    sa.Column("ingested_at", TIME),
    sa.UniqueConstraint("dataset_id", "ordinal"),
    sa.UniqueConstraint("dataset_id", "partition_key"),
    sa.CheckConstraint("state in ('open', 'ingested', 'failed')", name="state"),
)


@dataclass(frozen=True, slots=True)
class LabelBatchFacts:
    """Measurements of ingestion; the names are those of ``LabelBatchRow``."""

    n_rows: int
    n_known: int
    n_waiting: int
    known_min: datetime
    known_max: datetime
    label_counts: Mapping[str, int]
    delays: Sequence[Sequence[Any]]
    findings: Mapping[str, Any]
    checksums: Mapping[str, str]


def list_label_batches(conn: sa.Connection, dataset_id: int, state: str | None = None) -> list[LabelBatchRow]:
    """All label batches of a dataset, or those in one state, in ordinal order."""
    where = label_batch.c.dataset_id == dataset_id
    if state is not None:
        where &= label_batch.c.state == state
    return list_rows(conn, LabelBatchRow, sa.select(label_batch).where(where).order_by(label_batch.c.ordinal))


def ingested_label_batches(conn: sa.Connection, dataset_id: int) -> list[LabelBatchRow]:
    """Ingested label batches of a dataset, in the order of their ingestion."""
    where = (label_batch.c.dataset_id == dataset_id) & (label_batch.c.state == "ingested")
    order = label_batch.c.ingested_at, label_batch.c.ordinal
    return list_rows(conn, LabelBatchRow, sa.select(label_batch).where(where).order_by(*order))


def get_label_batch(conn: sa.Connection, dataset_id: int, partition_key: str) -> LabelBatchRow:
    """A label batch by its partition key; ``UnknownName`` when there is none."""
    where = (label_batch.c.dataset_id == dataset_id) & (label_batch.c.partition_key == partition_key)
    row = find_row(conn, LabelBatchRow, sa.select(label_batch).where(where))
    if row is None:
        raise UnknownName("label batch", partition_key)
    return row


def first_open_label_batch(conn: sa.Connection, dataset_id: int) -> LabelBatchRow | None:
    """The open label batch of a dataset that arrived first, by ordinal among those of one arrival; None when all are closed."""
    where = (label_batch.c.dataset_id == dataset_id) & (label_batch.c.state == "open")
    order = label_batch.c.arrival, label_batch.c.ordinal
    return find_row(conn, LabelBatchRow, sa.select(label_batch).where(where).order_by(*order).limit(1))


def lock_label_batch(conn: sa.Connection, label_batch_id: int) -> LabelBatchRow:
    """Read a label batch and lock it until the transaction ends; ``UnknownName`` when its dataset was removed."""
    row = find_row(conn, LabelBatchRow, sa.select(label_batch).where(label_batch.c.id == label_batch_id).with_for_update())
    if row is None:
        raise UnknownName("label batch (it was removed with its dataset)", label_batch_id)
    return row


def first_open_arrival(dataset_id: int) -> sa.ScalarSelect[int | None]:
    """Arrival of the first open label batch of a dataset, as part of a query; null when all are closed."""
    where = (label_batch.c.dataset_id == dataset_id) & (label_batch.c.state == "open")
    return sa.select(sa.func.min(label_batch.c.arrival)).where(where).scalar_subquery()


def mark_labels_ingested(conn: sa.Connection, row: LabelBatchRow, facts: LabelBatchFacts) -> None:
    """Close a locked open label batch, in the transaction that records its labels."""
    values = asdict(facts) | {"state": "ingested", "ingested_at": sa.func.now()}
    conn.execute(sa.update(label_batch).where(label_batch.c.id == row.id).values(values))


def mark_labels_failed(
    conn: sa.Connection, row: LabelBatchRow, error: str, file_states: Mapping[str, Any], traceback: str | None = None
) -> None:
    """Close an open label batch with the reason, as ``failed_values`` keeps it."""
    where = (label_batch.c.id == row.id) & (label_batch.c.state == "open")
    conn.execute(sa.update(label_batch).where(where).values(failed_values(row.source, error, file_states, traceback)))


def forget_found_ids(conn: sa.Connection, dataset_id: int, ids: Collection[str]) -> None:
    """Remove the rows that findings name with one of some ids; the numbers of rows stay."""
    where = (label_batch.c.dataset_id == dataset_id) & label_batch.c.findings.is_not(None)
    for row_id, findings in conn.execute(sa.select(label_batch.c.id, label_batch.c.findings).where(where)).all():
        kept = {kind: each | {"first": [row for row in each["first"] if row["id"] not in ids]} for kind, each in findings.items()}
        if kept != findings:
            conn.execute(sa.update(label_batch).where(label_batch.c.id == row_id).values(findings=kept))
