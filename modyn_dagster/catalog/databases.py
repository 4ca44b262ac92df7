"""The three databases on one server: ours, Dagster's and MLflow's."""

import sqlalchemy as sa
from psycopg2 import errors as pg
from psycopg2 import sql

from modyn_dagster.catalog.engine import open_engine, transaction
from modyn_dagster.catalog.urls import DATABASES, database_url, server_url, shown
from modyn_dagster.errors import CatalogError
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
