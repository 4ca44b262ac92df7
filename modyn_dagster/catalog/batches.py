"""Batches, their states (open, ingested, failed), and the source files that ingested batches were read from."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from modyn_dagster.catalog.database.mapping import as_row
from modyn_dagster.catalog.tables import batch, dataset, source_file
from modyn_dagster.errors import UnknownName
from modyn_dagster.keys import MAX_ORDINAL

#: Where a failed batch's source keeps the state of its files when it failed.
SEEN: Final = "seen"


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A row of ``batch``; what ingestion measures is None until then.

    Attributes:
        state: ``open``, ``ingested`` or ``failed``; only an open batch holds pipelines back.
        error: why it failed.
        repaired_by: id of the batch that delivers a failed one again.
        time_min, time_max: smallest and largest sample time; ``train_time_max`` the largest among train samples.
        label_counts: by class name, or by the decimal class index where classes are integers.
        index_path: relative to the home folder.
        deleted_version: of the list of deleted positions, 0 where nothing was deleted; ``deleted_checksum`` is that of its
            file, ``n_deleted`` its length. Deleted samples stay in all other counts.
    """

    id: int
    dataset_id: int
    ordinal: int
    partition_key: str
    state: str
    source: Mapping[str, Any]
    error: str | None
    repaired_by: int | None
    n_samples: int | None
    n_train: int | None
    time_min: datetime | None
    time_max: datetime | None
    train_time_max: datetime | None
    label_counts: Mapping[str, int] | None
    index_path: str | None
    index_checksum: str | None
    content_checksum: str | None
    deleted_version: int
    deleted_checksum: str | None
    n_deleted: int


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What ingestion measures, by the names of ``BatchRow``."""

    n_samples: int
    n_train: int
    time_min: datetime
    time_max: datetime
    train_time_max: datetime | None
    label_counts: Mapping[str, int]
    index_path: str
    index_checksum: str
    content_checksum: str


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A source file of a batch; ``mtime_ns`` is None where its bytes were copied and it is not read again."""

    path: str
    size: int
    mtime_ns: int | None
    checksum: str


def list_batches(conn: sa.Connection, dataset_id: int, state: str | None = None) -> list[BatchRow]:
    """All batches of a dataset, or those in one state, in ordinal order."""
    where = batch.c.dataset_id == dataset_id
    if state is not None:
        where &= batch.c.state == state
    rows = conn.execute(sa.select(batch).where(where).order_by(batch.c.ordinal))
    return [as_row(BatchRow, row) for row in rows]


def visible_batches(conn: sa.Connection, dataset_id: int) -> list[BatchRow]:
    """What pipelines see: ingested batches up to the first one that is still open, in ordinal order."""
    first_open = (
        sa.select(sa.func.coalesce(sa.func.min(batch.c.ordinal), MAX_ORDINAL))
        .where(batch.c.dataset_id == dataset_id, batch.c.state == "open")
        .scalar_subquery()
    )
    where = (batch.c.dataset_id == dataset_id) & (batch.c.state == "ingested") & (batch.c.ordinal < first_open)
    return [as_row(BatchRow, row) for row in conn.execute(sa.select(batch).where(where).order_by(batch.c.ordinal))]


def changed_batches(conn: sa.Connection, dataset_id: int, known: Sequence[BatchRow]) -> dict[int, BatchRow]:
    """Those of some ingested batches whose samples were deleted or purged since they were read, as they are now, by ordinal."""
    where = (batch.c.dataset_id == dataset_id) & (batch.c.deleted_version > 0)
    before = {row.ordinal: row for row in known}
    now = (as_row(BatchRow, row) for row in conn.execute(sa.select(batch).where(where)))
    return {row.ordinal: row for row in now if row.ordinal in before and row != before[row.ordinal]}


def get_batch(conn: sa.Connection, dataset_id: int, partition_key: str) -> BatchRow:
    """A batch by its partition key; ``UnknownName`` when there is none."""
    statement = sa.select(batch).where(batch.c.dataset_id == dataset_id, batch.c.partition_key == partition_key)
    row = conn.execute(statement).one_or_none()
    if row is None:
        raise UnknownName("batch", partition_key)
    return as_row(BatchRow, row)


def time_reached_before(conn: sa.Connection, dataset_id: int, ordinal: int) -> datetime | None:
    """The largest sample time among the ingested batches before an ordinal; None when there is none."""
    where = (batch.c.dataset_id == dataset_id) & (batch.c.state == "ingested") & (batch.c.ordinal < ordinal)
    reached: datetime | None = conn.execute(sa.select(sa.func.max(batch.c.time_max)).where(where)).scalar_one()
    return reached


def newest_arrival(conn: sa.Connection, dataset_id: int) -> tuple[str | None, datetime]:
    """Partition key and time of registration of the ingested batch that came last; (None, when the dataset was made)."""
    where = (batch.c.dataset_id == dataset_id) & (batch.c.state == "ingested")
    newest = sa.select(batch.c.partition_key, batch.c.created_at).where(where).order_by(batch.c.ordinal.desc()).limit(1)
    found = conn.execute(newest).one_or_none()
    if found is not None:
        return str(found.partition_key), found.created_at
    return None, conn.execute(sa.select(dataset.c.created_at).where(dataset.c.id == dataset_id)).scalar_one()


def lock_batch(conn: sa.Connection, batch_id: int) -> BatchRow:
    """A batch as it is now, locked until the transaction ends."""
    return as_row(BatchRow, conn.execute(sa.select(batch).where(batch.c.id == batch_id).with_for_update()).one())


def mark_ingested(conn: sa.Connection, row: BatchRow, facts: BatchFacts, files: Sequence[FileFacts]) -> None:
    """Close a locked open batch; its samples are copied in the same transaction."""
    values = asdict(facts) | {"state": "ingested", "ingested_at": sa.func.now()}
    conn.execute(sa.update(batch).where(batch.c.id == row.id).values(values))
    owner = {"dataset_id": row.dataset_id, "batch_id": row.id}
    conn.execute(sa.insert(source_file), [owner | asdict(file) for file in files])


def mark_failed(conn: sa.Connection, row: BatchRow, error: str, seen: Mapping[str, Any]) -> None:
    """Close an open batch with the reason; ``seen`` is the state of its files, JSON, to tell when they change."""
    where = (batch.c.id == row.id) & (batch.c.state == "open")
    source = {**row.source, SEEN: seen}
    conn.execute(sa.update(batch).where(where).values(state="failed", error=error, source=source))


def set_index(conn: sa.Connection, batch_id: int, *, path: str, checksum: str) -> None:
    """Make a rewrite of the index, and of the shard with its stem, the one that counts; both files are there already."""
    conn.execute(sa.update(batch).where(batch.c.id == batch_id).values(index_path=path, index_checksum=checksum))


def source_files(conn: sa.Connection, batch_id: int) -> list[FileFacts]:
    """The files of an ingested batch in path order."""
    statement = sa.select(source_file).where(source_file.c.batch_id == batch_id).order_by(source_file.c.path)
    return [as_row(FileFacts, row) for row in conn.execute(statement)]


def batches_of_file(conn: sa.Connection, dataset_id: int, path: str) -> list[BatchRow]:
    """The ingested batches that read a file, in ordinal order: one, or several slices of the same bulk import."""
    statement = sa.select(batch).join(source_file, source_file.c.batch_id == batch.c.id)
    where = (source_file.c.dataset_id == dataset_id) & (source_file.c.path == path)
    return [as_row(BatchRow, row) for row in conn.execute(statement.where(where).order_by(batch.c.ordinal))]


def mtimes_in_place(conn: sa.Connection, dataset_id: int) -> dict[str, int]:
    """By path, the mtime in nanoseconds that files read in place had when they were ingested."""
    statement = sa.select(source_file.c.path, source_file.c.mtime_ns).where(
        source_file.c.dataset_id == dataset_id, source_file.c.mtime_ns.is_not(None)
    )
    return {path: int(mtime) for path, mtime in conn.execute(statement).tuples()}


def owners_of(conn: sa.Connection, row: BatchRow, paths: Sequence[str]) -> dict[str, str]:
    """Which of these paths another batch has ingested, as path: partition key.

    Slices of the same bulk import share their files.
    """
    statement = (
        sa.select(source_file.c.path, batch.c.partition_key)
        .join(batch, source_file.c.batch_id == batch.c.id)
        .where(source_file.c.dataset_id == row.dataset_id, batch.c.id != row.id)
        .where(source_file.c.path == sa.any_(sa.literal(list(paths), ARRAY(sa.Text))))
    )
    if "import" in row.source:
        statement = statement.where(batch.c.source["import"].astext.is_distinct_from(row.source["import"]))
    return dict(conn.execute(statement).tuples().all())
