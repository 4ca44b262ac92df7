"""Samples of a window as a view in Postgres: keys, times, labels as of the trigger's position, and attributes."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.compiler import compiles

from modyn_dagster.catalog.database.mapping import TIME
from modyn_dagster.catalog.datasets import sample
from modyn_dagster.catalog.samples import SampleRows, copy_rows
from modyn_dagster.data.label_files import is_labelled
from modyn_dagster.data.view import DatasetView
from modyn_dagster.keys import KeyArray

#: Temporary table of a session, gone with its transaction.
HELD: Final = sa.Table(
    "window_sample",
    sa.MetaData(),
    sa.Column("key", sa.BigInteger, nullable=False),
    sa.Column("time", TIME, nullable=False),
    sa.Column("label", sa.BigInteger),
    sa.Column("target", sa.Double),
    prefixes=["TEMPORARY"],
    postgresql_on_commit="DROP",
)


#: Temporary view of the samples with their attributes: the one relation that a statement's role may read.
VIEW: Final = sa.table("window_samples", *(sa.column(c.name, c.type) for c in HELD.c), sa.column("attributes", JSONB))


class _CreateView(sa.schema.ExecutableDDLElement):
    """``CREATE TEMPORARY VIEW`` of a select; its values are written out, as a view has no parameters."""

    def __init__(self, select: sa.Select[Any]) -> None:
        self.select = select


@compiles(_CreateView)
def _view_ddl(element: _CreateView, compiler: Any, **_: Any) -> str:
    return f"CREATE TEMPORARY VIEW {VIEW.name} AS {compiler.sql_compiler.process(element.select, literal_binds=True)}"


def window_samples() -> sa.Subquery:
    """Samples as a statement gets them: those of the view, or of no window as long as nobody runs it."""
    return sa.select(VIEW).subquery("samples")


def hold_samples(conn: sa.Connection, view: DatasetView, keys: Iterable[KeyArray]) -> None:
    """Write samples into a temporary table, and lend the view of them with their attributes to the role of statements.

    Labels are those known at the view's position. Table, view and loan end with the transaction, which is rolled back.

    Args:
        conn: in a transaction that may write.
        view: of the dataset at the trigger.
        keys: of the window, ascending, in chunks.
    """
    HELD.create(conn)
    first, last = None, -1
    for chunk in keys:
        if len(chunk):
            first, last = int(chunk[0]) if first is None else first, int(chunk[-1])
            for rows in _rows(view, chunk):
                copy_rows(conn, HELD.name, rows)
    # Planned without it, a join takes an empty table for granted.
    conn.exec_driver_sql("ANALYZE window_sample")
    attributes: sa.ColumnElement[Any] = sa.cast(sa.null(), JSONB)
    source: sa.FromClause = HELD
    if view.spec.attributes and first is not None:
        there = (sample.c.dataset_id == view.row.id) & sample.c.key.between(first, last) & (sample.c.key == HELD.c.key)
        attributes, source = sample.c.attributes, HELD.join(sample, there)
    lend_view(conn, sa.select(HELD, attributes.label("attributes")).select_from(source))


def lend_view(conn: sa.Connection, samples: sa.Select[Any]) -> None:
    """Make the view of a select, and let the role of statements read it."""
    conn.execute(_CreateView(samples))
    conn.exec_driver_sql("GRANT SELECT ON window_samples TO modyn_statement")


def _rows(view: DatasetView, keys: KeyArray) -> Iterator[SampleRows]:
    """Samples with a label, then those without one."""
    times, values = view.reader.store.timestamps(keys), view.labels_at(keys)
    labelled = is_labelled(values)
    if labelled.any():
        labels = values[labelled]
        columns = (labels, None) if labels.dtype == np.int64 else (None, labels)
        yield SampleRows(keys[labelled], times[labelled], *columns)
    if not labelled.all():
        yield SampleRows(keys[~labelled], times[~labelled])
