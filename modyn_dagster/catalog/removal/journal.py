"""Journal of removals: files, models and displays that are still to go once the rows of a pipeline or dataset are gone.

An entry is written in the transaction that deletes the rows, and deleted when everything that it names is gone. So a removal
takes place as a whole or not at all, and one that was killed is completed by the next call.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import sqlalchemy as sa

from modyn_dagster.catalog.database.mapping import Id, created_column, list_rows, table
from modyn_dagster.errors import CatalogError

Kind = Literal["dataset", "pipeline"]


@dataclass(frozen=True, slots=True)
class RemovalRow:
    """A row of ``removal``.

    Attributes:
        name: of the pipeline or dataset.
        plan: JSON, what is to be removed beside the catalog.
    """

    id: Id
    kind: Annotated[Kind, sa.Text()]
    name: str
    plan: Mapping[str, Any]


removal: Final = table(
    "removal",
    RemovalRow,
    created_column(),
    sa.CheckConstraint("kind in ('dataset', 'pipeline')", name="kind"),
)


def begin_removal(conn: sa.Connection, kind: Kind, name: str, plan: Mapping[str, Any]) -> RemovalRow:
    """Write an entry, in the transaction that deletes the rows."""
    statement = sa.insert(removal).values(kind=kind, name=name, plan=dict(plan)).returning(removal.c.id)
    return RemovalRow(int(conn.execute(statement).scalar_one()), kind, name, plan)


def unfinished_removals(conn: sa.Connection, kind: Kind, name: str) -> list[RemovalRow]:
    """Removals of a pipeline or dataset that are not complete, in the order they began."""
    where = (removal.c.kind == kind) & (removal.c.name == name)
    return list_rows(conn, RemovalRow, sa.select(removal).where(where).order_by(removal.c.id))


def end_removal(conn: sa.Connection, row: RemovalRow) -> None:
    """Delete an entry: everything that it names is gone."""
    conn.execute(sa.delete(removal).where(removal.c.id == row.id))


def require_no_removal(conn: sa.Connection, dataset_name: str) -> None:
    """Raise ``CatalogError`` while files of a removed dataset of this name are still to go: a new one would lose its own."""
    if unfinished_removals(conn, "dataset", dataset_name):
        remedy = f"complete it first: `modyn-dagster dataset remove {dataset_name}`"
        raise CatalogError(f"dataset {dataset_name} is being removed; {remedy}")
