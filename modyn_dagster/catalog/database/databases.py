"""The three databases on one server (ours, Dagster's and MLflow's): create, upgrade, health."""

from dataclasses import dataclass

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from psycopg2 import errors as pg
from psycopg2 import sql

from modyn_dagster.catalog.database.engine import current_revision, open_engine, transaction
from modyn_dagster.catalog.database.urls import DATABASES, database_url, server_url, shown
from modyn_dagster.catalog.embedded import EmbeddedPostgres, ServerStatus
from modyn_dagster.catalog.revisions import MIGRATIONS, head_revision, outdated
from modyn_dagster.errors import CatalogError, DatabaseDown
from modyn_dagster.settings import Settings

# UTF-8 and text compared by bytes, whatever the server's own defaults: the same order of names everywhere.
_CREATE = sql.SQL("create database {} template template0 encoding 'UTF8' lc_collate 'C' lc_ctype 'C'")


def existing_databases(settings: Settings) -> dict[str, bool]:
    """The names of the three, and whether each exists on the server."""
    engine = open_engine(server_url(settings))
    try:
        return _existing(engine, settings)
    finally:
        engine.dispose()


def create_databases(settings: Settings) -> list[str]:
    """Make those of the three that are missing, and return their names; several processes may do so at once.

    Raises ``CatalogError`` when the account may not make databases.
    """
    engine = open_engine(server_url(settings))
    try:
        return [name for name, exists in _existing(engine, settings).items() if not exists and _create(engine, name)]
    finally:
        engine.dispose()


def _existing(engine: sa.Engine, settings: Settings) -> dict[str, bool]:
    names = [str(database_url(settings, name).database) for name in DATABASES]
    with transaction(engine) as connection:
        known = set(connection.scalars(sa.text("select datname from pg_database")))
    return {name: name in known for name in names}


def _create(engine: sa.Engine, name: str) -> bool:
    """Whether it was made here and not by another process meanwhile."""
    # Postgres refuses CREATE DATABASE inside a transaction.
    with transaction(engine.execution_options(isolation_level="AUTOCOMMIT")) as connection:
        cursor = connection.connection.cursor()
        try:
            cursor.execute(_CREATE.format(sql.Identifier(name)))
        except (pg.DuplicateDatabase, pg.UniqueViolation):
            return False
        except pg.InsufficientPrivilege as error:
            raise CatalogError(
                f"{shown(engine.url)}: this account may not create the database {name!r}; "
                f"create it yourself (encoding UTF8) or use an account with CREATEDB"
            ) from error
        finally:
            cursor.close()
    return True


@dataclass(frozen=True, slots=True)
class Health:
    """``server`` is None when it is not the embedded one, or was never started; ``problem`` says why it does not answer."""

    address: str
    server: ServerStatus | None
    databases: dict[str, bool]
    revision: str | None
    expected_revision: str
    problem: str | None

    @property
    def answers(self) -> bool:
        """Whether the server accepts connections."""
        return self.problem is None

    @property
    def ready(self) -> bool:
        """Whether everything of ours can work with it."""
        return self.answers and all(self.databases.values()) and self.revision == self.expected_revision


def health_of(settings: Settings) -> Health:
    """Look at the server and ask it; raises only for settings that are wrong."""
    try:
        address = shown(server_url(settings))
        server = None if settings.postgres_url else EmbeddedPostgres(settings.home, settings.pg_bin).status()
    except DatabaseDown as error:
        return Health(error.address, None, {}, None, head_revision(), str(error))
    try:
        databases = existing_databases(settings)
        revision = _revision(settings) if databases[str(database_url(settings, "modyn").database)] else None
    except DatabaseDown as error:
        return Health(address, server, {}, None, head_revision(), str(error))
    return Health(address, server, databases, revision, head_revision(), None)


def _revision(settings: Settings) -> str | None:
    engine = open_engine(settings)
    try:
        return current_revision(engine)
    finally:
        engine.dispose()


__all__ = ["current_revision", "head_revision", "upgrade"]

# Any number that nothing else in the database locks: the letters of "modyn".
_LOCK = int.from_bytes(b"modyn")


def upgrade(engine: sa.Engine) -> None:
    """Run the missing migrations, all in one transaction; two upgrades at once run one after the other.

    Raises ``SchemaOutdated`` when the database was already upgraded by a later version of this code.
    """
    found = current_revision(engine)
    if found is not None and (error := outdated(found)).newer:
        raise error
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    with transaction(engine) as connection:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
