"""Role that statements of users run as: it has no rights of its own, and is lent one view for the time of a transaction.

The writer is a member of it and takes it on. Who connects stays the writer, so the role needs no password and cannot log in.
"""

from typing import Final

import sqlalchemy as sa
from psycopg2 import errors, extensions, sql

from modyn_dagster.catalog.access.authentication import display_address
from modyn_dagster.errors import CatalogError

#: The same on every server: whoever lends it something does so inside of a transaction.
STATEMENT: Final = "modyn_statement"

_EXISTS: Final = "select exists (select from pg_roles where rolname = %s)"
_IS_MEMBER: Final = "select pg_has_role(%s, %s, 'MEMBER')"
_MAKE: Final = sql.SQL("create role {role} nologin nosuperuser nocreatedb nocreaterole noreplication nobypassrls")
_LEND: Final = sql.SQL("grant {role} to {writer}")
_READY: Final = sa.text(
    "select current_user, exists (select from pg_roles where rolname = :role), coalesce((select pg_has_role(current_user, oid, "
    "'MEMBER') from pg_roles where rolname = :role), false)"
)


def make_statement_role(cursor: extensions.cursor, writer: str) -> bool:
    """Make the role, and the writer a member of it; a second call changes nothing.

    Args:
        cursor: in a transaction.
        writer: name of the role that may take it on.

    Returns:
        False where the cursor's own role may not do that: an administrator has to run ``remedy``.
    """
    cursor.execute("savepoint statement_role")
    try:
        cursor.execute(_EXISTS, (STATEMENT,))
        if cursor.fetchone() != (True,):
            cursor.execute(_MAKE.format(role=sql.Identifier(STATEMENT)))
        cursor.execute(_IS_MEMBER, (writer, STATEMENT))
        if cursor.fetchone() != (True,):
            cursor.execute(_LEND.format(role=sql.Identifier(STATEMENT), writer=sql.Identifier(writer)))
    except errors.InsufficientPrivilege:
        cursor.execute("rollback to savepoint statement_role")
        return False
    return True


def remedy(writer: str) -> str:
    """Statements for an administrator of the server."""
    return f'create role {STATEMENT} nologin; grant {STATEMENT} to "{writer}";'


def statement_role_problem(conn: sa.Connection) -> str | None:
    """Say why statements cannot run as their role, and what to do; None where they can."""
    writer, exists, is_member = conn.execute(_READY, {"role": STATEMENT}).one()
    if is_member:
        return None
    missing = f"{writer!r} may not take on the role {STATEMENT!r}" if exists else f"there is no role {STATEMENT!r}"
    return (
        f"{missing}, as which statements of `selection.strategy` run; `modyn-dagster db start` makes it on the embedded server, "
        f"on another one an administrator: {remedy(writer)}"
    )


def require_statement_role(conn: sa.Connection) -> None:
    """Raise ``CatalogError`` where statements cannot run as their role."""
    if (problem := statement_role_problem(conn)) is not None:
        raise CatalogError(f"{display_address(conn.engine.url)}: {problem}")
