"""The source files of ingested batches: which batch read which, and what they were then."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from modyn_dagster.catalog.batches import BatchRow, FileFacts
from modyn_dagster.catalog.rows import as_row
from modyn_dagster.catalog.tables import batch, source_file


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
