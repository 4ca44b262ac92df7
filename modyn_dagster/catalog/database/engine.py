"""Connections to the ``modyn`` database, and transactions that turn a lost connection into ``DatabaseDown``."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg2
import sqlalchemy as sa
from psycopg2 import errorcodes
from sqlalchemy.exc import DBAPIError

from modyn_dagster.catalog.access.authentication import REFUSED, display_address
from modyn_dagster.catalog.access.roles import RoleName
from modyn_dagster.catalog.database.urls import database_url
from modyn_dagster.catalog.revisions import head_revision, outdated
from modyn_dagster.errors import DatabaseDown, DatabaseFull
from modyn_dagster.settings import Settings

_CONNECT_SECONDS = 10
_POOL_SIZE = 4
_DOWN_CODES = frozenset(
    {
        errorcodes.ADMIN_SHUTDOWN,
        errorcodes.CRASH_SHUTDOWN,
        errorcodes.CANNOT_CONNECT_NOW,
        errorcodes.TOO_MANY_CONNECTIONS,
    }
)


def open_engine(target: Settings | sa.URL, role: RoleName = "writer") -> sa.Engine:
    """Open a small pool of connections, made when first used, for a role or an address; sessions use UTC.

    A connection that died with its server is replaced when it is taken from the pool. Call ``dispose()`` at the end.
    """
    url = database_url(target, "modyn", role) if isinstance(target, Settings) else target
    own = url.query.get("options", "")
    options = " ".join([*([own] if isinstance(own, str) else own), "-c timezone=UTC"]).strip()
    return sa.create_engine(
        url,
        pool_pre_ping=True,
        # Rows of one statement in few round trips instead of one each.
        executemany_mode="values_plus_batch",
        pool_size=_POOL_SIZE,
        max_overflow=_POOL_SIZE,
        connect_args={
            "connect_timeout": _CONNECT_SECONDS,
            "application_name": "modyn-dagster",
            "options": options,
        },
    )


@contextmanager
def transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Run one transaction: committed at the end of the block, rolled back by any exception.

    Raises:
        DatabaseDown: no connection, or it was lost, as noticed by SQLAlchemy or psycopg2. A commit that was under way may
            have taken place.
        DatabaseFull: no room on the server's disk; nothing was committed.
        SchemaOutdated: the server runs, but the database was never made.
    """
    with named_faults(engine), engine.begin() as connection:
        yield connection


@contextmanager
def named_faults(engine: sa.Engine) -> Iterator[None]:
    """Raise faults of the server and the connection in the block as ``transaction`` does; other errors pass."""
    try:
        yield
    except (DBAPIError, psycopg2.Error) as error:
        if _is_full(error):
            raise DatabaseFull(display_address(engine.url), _reason(error, engine.url)) from error
        if not _is_down(error):
            raise
        reason = _reason(error, engine.url)
        if f'database "{engine.url.database}" does not exist' in reason:
            raise outdated(None) from error
        raise DatabaseDown(display_address(engine.url), reason) from error


def current_revision(engine: sa.Engine) -> str | None:
    """Revision of the schema in the database; None before the first upgrade."""
    with transaction(engine) as connection:
        if connection.scalar(sa.select(sa.func.to_regclass("alembic_version"))) is None:
            return None
        return connection.scalar(sa.select(sa.column("version_num")).select_from(sa.table("alembic_version")))


def require_current_schema(engine: sa.Engine) -> None:
    """Raise ``SchemaOutdated`` unless the database's schema is the one this code was written for."""
    revision = current_revision(engine)
    if revision != head_revision():
        raise outdated(revision)


def _is_down(error: DBAPIError | psycopg2.Error) -> bool:
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    if isinstance(cause, psycopg2.OperationalError):
        # Without a code the client failed: no connection, or one that broke.
        code = cause.pgcode
        return code is None or code[:2] == errorcodes.CLASS_CONNECTION_EXCEPTION or code in _DOWN_CODES
    return isinstance(cause, psycopg2.InterfaceError) and "closed" in str(cause)


def _is_full(error: DBAPIError | psycopg2.Error) -> bool:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return isinstance(cause, psycopg2.Error) and cause.pgcode == errorcodes.DISK_FULL


def _reason(error: DBAPIError | psycopg2.Error, url: sa.URL) -> str:
    """First line of the driver's message, which names the cause; it holds no SQL and no parameters."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    line = next(iter(str(cause).strip().splitlines()), "connection lost")
    if REFUSED in line:
        line += "; no password was sent: it is another program's port, or a server to be allowed by `require_auth` in its address"
    return line.replace(str(url.password), "***") if url.password else line
