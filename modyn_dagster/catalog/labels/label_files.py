"""Label files: labels that arrived after their samples, as files that the read side opens.

Rows are only ever added, in the transaction of the label batch or of the sample batch that they came with. A purge of deleted
samples writes a file again under another name and switches its row.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, aggregate_order_by

from modyn_dagster.catalog.database.mapping import BigInt, Id, Mark, References, created_column, list_rows, table
from modyn_dagster.catalog.labels.label_batches import first_open_arrival


@dataclass(frozen=True, slots=True)
class LabelFileFacts:
    """Measurements of a written label file; the names are those of ``LabelFileRow``."""

    path: str
    checksum: str
    n_rows: int
    parts: Sequence[Sequence[int]]
    largest: int


@dataclass(frozen=True, slots=True)
class LabelFileRow:
    """A row of ``label_file``.

    Attributes:
        arrival: position in the dataset's sequence of arrivals from which on its labels are known: that of the label batch, or
            of the sample batch where that came later.
        path: relative to the home folder.
        checksum: of the file, hex BLAKE2b of 16 bytes.
        parts: ``[ordinal, first row, number of rows]`` of each sample batch that has rows in the file.
        largest: class that the file had when it was first written, before any purge; -1 without rows, and for targets. Models
            have an output for it, so one that is made again after a purge has the same ones.
    """

    id: Id
    dataset_id: Annotated[int, References("dataset.id")]
    arrival: int
    path: Annotated[str, Mark.UNIQUE]
    checksum: str
    n_rows: BigInt
    parts: Annotated[Sequence[Sequence[int]], JSONB()]
    largest: int


label_file: Final = table(
    "label_file", LabelFileRow, created_column(), sa.Index("ix_label_file_dataset_id_arrival", "dataset_id", "arrival")
)


def record_label_file(conn: sa.Connection, dataset_id: int, arrival: int, facts: LabelFileFacts) -> None:
    """Record a label file, in the transaction of the batch that it came with; the file exists already."""
    conn.execute(sa.insert(label_file).values(dataset_id=dataset_id, arrival=arrival, **asdict(facts)))


def label_files(conn: sa.Connection, dataset_id: int) -> list[LabelFileRow]:
    """All label files of a dataset, in the order of their arrival."""
    statement = sa.select(label_file).where(label_file.c.dataset_id == dataset_id)
    return list_rows(conn, LabelFileRow, statement.order_by(label_file.c.arrival, label_file.c.id))


def complete_label_files(conn: sa.Connection, dataset_id: int) -> list[LabelFileRow]:
    """Label files of the arrivals before the first open label batch, in the order of their arrival.

    No file is added to these arrivals any more, so labels as of any of them stay the same.
    """
    # In one statement: two would see a label batch that is registered and ingested between them.
    statement = sa.select(label_file).where((label_file.c.dataset_id == dataset_id) & _is_complete(dataset_id))
    return list_rows(conn, LabelFileRow, statement.order_by(label_file.c.arrival, label_file.c.id))


def label_files_version(conn: sa.Connection, dataset_id: int) -> str:
    """Version of a dataset's complete label files: equal texts mean equal rows. Empty where there are none."""
    checksums = sa.func.string_agg(label_file.c.checksum, aggregate_order_by(sa.literal(""), label_file.c.id))
    statement = sa.select(sa.func.coalesce(sa.func.md5(checksums), ""))
    statement = statement.where((label_file.c.dataset_id == dataset_id) & _is_complete(dataset_id))
    text: str = conn.execute(statement).scalar_one()
    return text


def replace_label_file(conn: sa.Connection, label_file_id: int, facts: LabelFileFacts) -> None:
    """Switch a row to the file that was written in place of its own; the new one exists already. The largest class stays."""
    values = asdict(facts)
    del values["largest"]
    conn.execute(sa.update(label_file).where(label_file.c.id == label_file_id).values(**values))


def _is_complete(dataset_id: int) -> sa.ColumnElement[bool]:
    first_open = first_open_arrival(dataset_id)
    return first_open.is_(None) | (label_file.c.arrival < first_open)
