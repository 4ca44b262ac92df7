"""The three databases on one server (ours, Dagster's and MLflow's): create, upgrade, health."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

import sqlalchemy as sa
from psycopg2 import errors as pg
from psycopg2 import sql

from modyn_dagster.catalog.access.authentication import display_address
from modyn_dagster.catalog.access.roles import DATABASES, DatabaseName, Roles, grant_rights
from modyn_dagster.catalog.access.statement_role import make_statement_role, statement_role_problem
from modyn_dagster.catalog.database.engine import current_revision, open_engine, transaction
from modyn_dagster.catalog.database.urls import database_url, roles_of, server_url
from modyn_dagster.catalog.embedded import EmbeddedPostgres, ServerStatus
from modyn_dagster.catalog.revisions import MIGRATIONS, can_upgrade, head_revision, outdated
from modyn_dagster.errors import CatalogError, DatabaseDown
from modyn_dagster.settings import Settings

# UTF-8 and text compared by bytes, whatever the server's own defaults: the same order of names everywhere.
_CREATE = sql.SQL("create database {} template template0 encoding 'UTF8' lc_collate 'C' lc_ctype 'C'")
# An advisory lock that nothing else in the database takes: the letters of "modyn".
_UPGRADE_LOCK = int.from_bytes(b"modyn")

_RIGHTS = """
select rolname, rolsuper, exists (select from pg_database where datname = :database and datdba = pg_roles.oid)
from pg_roles where rolname = current_user
"""
_REMEDY = "give it a role that only writes rows, and name the owner in MODYN_POSTGRES_OWNER_URL (docs/postgres.md)"


def existing_databases(settings: Settings) -> dict[str, bool]:
    """Names of the three databases, and whether each exists on the server."""
    with _engine(server_url(settings)) as engine:
        return _existing(engine, settings)


def create_databases(settings: Settings) -> list[str]:
    """Create the missing ones of the three databases and return their names; several processes may do so at once.

    The owner makes them, gives the writer and the reader their rights, and makes the role of statements where it may. Raises
    ``CatalogError`` when the owner may not create databases.
    """
    with _engine(server_url(settings, "owner")) as engine:
        made = [name for name, exists in _existing(engine, settings).items() if not exists and _create(engine, name)]
    roles = roles_of(settings)
    if roles.owner != roles.writer:
        for database in DATABASES:
            _grant(settings, database, roles)
    if settings.postgres_url is not None:
        _make_statement_role(settings, roles.writer)
    return made


def upgrade(engine: sa.Engine) -> None:
    """Run the missing migrations in one transaction; two upgrades at once run one after the other.

    Raises:
        SchemaOutdated: our migrations do not lead on from the database's revision.
        CatalogError: the role does not own the schema.
    """
    revision = current_revision(engine)
    if revision == head_revision():
        return
    if not can_upgrade(revision):
        raise outdated(revision)
    # Imported here: it takes an eighth of a second, and most commands find the schema as it is to be.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    try:
        with transaction(engine) as connection:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_UPGRADE_LOCK)))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except sa.exc.ProgrammingError as error:
        if not isinstance(error.orig, pg.InsufficientPrivilege):
            raise
        raise CatalogError(
            f"{display_address(engine.url)}: this role may not change the schema; name its owner in MODYN_POSTGRES_OWNER_URL"
        ) from error


@dataclass(frozen=True, slots=True)
class Health:
    """State of the server and its databases.

    Attributes:
        server: None for a server that is not the embedded one, or was never started.
        problem: reason why the server does not answer; None when it does.
        warning: more rights of the writer than it needs; None when there are none.
        statements: reason why statements of `selection.strategy` cannot run; None when they can.
    """

    address: str
    server: ServerStatus | None
    databases: dict[str, bool]
    revision: str | None
    expected_revision: str
    problem: str | None
    warning: str | None = None
    statements: str | None = None

    @property
    def answers(self) -> bool:
        """True if the server accepts connections."""
        return self.problem is None

    @property
    def ready(self) -> bool:
        """True if the server answers, the three databases exist, and our schema is current."""
        return self.answers and all(self.databases.values()) and self.revision == self.expected_revision


def health_of(settings: Settings) -> Health:
    """Look at the server and its databases; raises only for invalid settings."""
    try:
        address = display_address(server_url(settings))
        server = None if settings.postgres_url else EmbeddedPostgres(settings.home, settings.pg_bin).status()
    except DatabaseDown as error:
        return Health(error.address, None, {}, None, head_revision(), str(error))
    try:
        databases = existing_databases(settings)
        revision = None
        if databases[str(database_url(settings, "modyn").database)]:
            with _engine(settings) as engine:
                revision = current_revision(engine)
    except DatabaseDown as error:
        return Health(address, server, {}, None, head_revision(), str(error))
    return Health(address, server, databases, revision, head_revision(), None, *warnings_of(settings))


def database_bytes(conn: sa.Connection, settings: Settings) -> dict[DatabaseName, int]:
    """Bytes of the three databases, those that exist."""
    names = {str(database_url(settings, name).database): name for name in DATABASES}
    statement = sa.text("select datname, pg_database_size(datname) from pg_database where datname = any(:names)")
    return {names[name]: int(n_bytes) for name, n_bytes in conn.execute(statement, {"names": [*names]}).tuples()}


def warnings_of(settings: Settings) -> tuple[str | None, str | None]:
    """Warn of more rights of the writer than it needs, and of fewer than statements of `selection.strategy` need."""
    with _engine(server_url(settings)) as engine, transaction(engine) as connection:
        return excessive_rights(settings), statement_role_problem(connection)


def excessive_rights(settings: Settings) -> str | None:
    """Describe rights of the writer that it does not need, on a server of one's own; None when there are none."""
    if settings.postgres_url is None:
        return None
    with _engine(server_url(settings)) as engine, transaction(engine) as connection:
        statement = sa.text(_RIGHTS).bindparams(database=database_url(settings, "modyn").database)
        name, is_superuser, is_owner = connection.execute(statement).one()
    if is_superuser:
        return f"the role {name!r} of MODYN_POSTGRES_URL is a superuser: with its password, programs run on the server; {_REMEDY}"
    return f"the role {name!r} of MODYN_POSTGRES_URL also owns the schema; {_REMEDY}" if is_owner else None


def _grant(settings: Settings, database: DatabaseName, roles: Roles) -> None:
    url = database_url(settings, database, "owner")
    with _engine(url) as engine, transaction(engine) as connection:
        # Two processes that grant the same rights at once would fail: "tuple concurrently updated".
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_UPGRADE_LOCK)))
        with closing(connection.connection.cursor()) as cursor:
            grant_rights(cursor, database, str(url.database), roles)


def _make_statement_role(settings: Settings, writer: str) -> None:
    """Make the role as the owner; where that is not allowed, `db upgrade` and `db status` say what an administrator runs."""
    with _engine(server_url(settings, "owner")) as engine, transaction(engine) as connection:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_UPGRADE_LOCK)))
        with closing(connection.connection.cursor()) as cursor:
            make_statement_role(cursor, writer)


@contextmanager
def _engine(target: Settings | sa.URL) -> Iterator[sa.Engine]:
    engine = open_engine(target)
    try:
        yield engine
    finally:
        engine.dispose()


def _existing(engine: sa.Engine, settings: Settings) -> dict[str, bool]:
    names = [str(database_url(settings, name).database) for name in DATABASES]
    with transaction(engine) as connection:
        present = set(connection.scalars(sa.text("select datname from pg_database")))
    return {name: name in present for name in names}


def _create(engine: sa.Engine, name: str) -> bool:
    """Create a database; False if another process just did."""
    # Postgres refuses CREATE DATABASE inside a transaction.
    with transaction(engine.execution_options(isolation_level="AUTOCOMMIT")) as connection:
        cursor = connection.connection.cursor()
        try:
            cursor.execute(_CREATE.format(sql.Identifier(name)))
        except (pg.DuplicateDatabase, pg.UniqueViolation):
            return False
        except pg.InsufficientPrivilege as error:
            raise CatalogError(
                f"{display_address(engine.url)}: this account may not create the database {name!r}; "
                f"create it yourself (encoding UTF8) or use an account with CREATEDB"
            ) from error
        finally:
            cursor.close()
    return True
