"""Samples of a window as a relation in Postgres: keys, times, labels as of the trigger's position, and attributes."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

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


def example_samples() -> sa.Subquery:
    """Samples of no window, to look at a statement without a database."""
    return _selectable(sa.cast(sa.null(), JSONB))


def hold_samples(conn: sa.Connection, view: DatasetView, keys: Iterable[KeyArray]) -> sa.Subquery:
    """Write samples of a view into a temporary table of the transaction, and return them with their attributes.

    Labels are those known at the view's position.

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
    if not view.spec.attributes or first is None:
        return _selectable(sa.cast(sa.null(), JSONB))
    there = (sample.c.dataset_id == view.row.id) & sample.c.key.between(first, last) & (sample.c.key == HELD.c.key)
    return _selectable(sample.c.attributes, HELD.join(sample, there))


def _selectable(attributes: sa.ColumnElement[Any], source: sa.FromClause = HELD) -> sa.Subquery:
    return sa.select(HELD, attributes.label("attributes")).select_from(source).subquery("samples")


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
