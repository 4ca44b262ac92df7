"""Roles of the databases, and their rights: the owner changes schemas, the writer rows, the reader nothing.

None of them is a superuser, so no statement of theirs runs a program or opens a file of the server.

=========  ==============================================  =====================================
role       database ``modyn``                              databases ``dagster`` and ``mlflow``
=========  ==============================================  =====================================
owner      owns database, schema and tables                owns the database
writer     selects, inserts, updates and deletes rows      makes and owns the tables
reader     selects rows                                    no access
=========  ==============================================  =====================================
"""

from dataclasses import dataclass
from typing import Final, Literal

from psycopg2 import extensions, sql

RoleName = Literal["owner", "writer", "reader"]
DatabaseName = Literal["modyn", "dagster", "mlflow"]
DATABASES: Final[tuple[DatabaseName, ...]] = ("modyn", "dagster", "mlflow")


@dataclass(frozen=True, slots=True)
class Roles:
    """Names of the three roles on a server; a server without a role for readers has None."""

    owner: str
    writer: str
    reader: str | None = None


#: Roles of the embedded server.
EMBEDDED: Final = Roles("modyn_owner", "modyn_writer", "modyn_reader")


def grant_rights(cursor: extensions.cursor, name: DatabaseName, database: str, roles: Roles) -> None:
    """Give writer and reader their rights in the database that ``cursor`` is connected to; a second call changes nothing.

    Args:
        cursor: of the owner or a superuser.
        name: database it is for us.
        database: its name on the server.
        roles: owner, writer and reader.
    """
    names = {"database": database, "owner": roles.owner, "writer": roles.writer}
    statements = [*_CLOSED, *(_CATALOG if name == "modyn" else _FOREIGN)]
    if roles.reader is not None and name == "modyn":
        names["reader"] = roles.reader
        statements += _READ
    identifiers = {key: sql.Identifier(value) for key, value in names.items()}
    for statement in statements:
        cursor.execute(sql.SQL(statement).format(**identifiers))


_CLOSED: Final = (
    "revoke all on database {database} from public",
    "revoke all on schema public from public",
    "grant connect, temporary on database {database} to {writer}",
)
#: Default rights come first: they hold for the tables that a migration is about to make.
_CATALOG: Final = (
    "grant usage on schema public to {writer}",
    "alter default privileges for role {owner} in schema public grant select, insert, update, delete on tables to {writer}",
    "alter default privileges for role {owner} in schema public grant execute on functions to {writer}",
    "grant select, insert, update, delete on all tables in schema public to {writer}",
    "grant execute on all functions in schema public to {writer}",
)
#: Dagster and MLflow make their tables themselves.
_FOREIGN: Final = ("grant usage, create on schema public to {writer}",)
_READ: Final = (
    "grant connect on database {database} to {reader}",
    "grant usage on schema public to {reader}",
    "alter default privileges for role {owner} in schema public grant select on tables to {reader}",
    "grant select on all tables in schema public to {reader}",
)
