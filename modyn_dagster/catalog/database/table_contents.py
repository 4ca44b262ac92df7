"""Contents of all tables of our databases as streams of bytes, for a search; nothing of them is written anywhere."""

import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import psycopg2
import sqlalchemy as sa
from psycopg2 import sql

from modyn_dagster.catalog.access.roles import DATABASES
from modyn_dagster.catalog.database.databases import existing_databases
from modyn_dagster.catalog.database.engine import named_faults, open_engine, transaction
from modyn_dagster.catalog.database.urls import database_url
from modyn_dagster.errors import CatalogError
from modyn_dagster.settings import Settings

# Partitions hold the rows of the tables above them.
_TABLES: Final = """
select n.nspname, c.relname, pg_table_size(c.oid)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'm') and n.nspname not like 'pg\\_%' and n.nspname <> 'information_schema'
order by 1, 2
"""
_BUFFER: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table of one of our databases.

    Attributes:
        url: of its database.
        name: with database and schema, for people.
        n_bytes: on the server's disk.
    """

    url: sa.URL
    name: str
    n_bytes: int
    _schema: str
    _table: str

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Read the rows as Postgres' binary COPY format, in which texts are their UTF-8 and JSON is its text.

        Raises:
            CatalogError: the table cannot be read, when the stream ends too early.
            DatabaseDown: the server does not answer.
        """
        reading, writing = os.pipe()
        faults: list[Exception] = []
        copying = threading.Thread(target=self._copy_to, args=(writing, faults), daemon=True)
        copying.start()
        try:
            with open(reading, "rb", buffering=_BUFFER) as stream:
                yield stream
        finally:
            # A reader that stops early has closed its end, which ends the copy.
            copying.join()
        if faults:
            raise faults[0]

    def _copy_to(self, writing: int, faults: list[Exception]) -> None:
        statement = sql.SQL("COPY {} TO STDOUT (FORMAT binary)").format(sql.Identifier(self._schema, self._table))
        try:
            with open(writing, "wb", buffering=_BUFFER) as stream, self._cursor() as cursor:
                cursor.copy_expert(statement, stream, size=_BUFFER)
        except BrokenPipeError:
            pass
        except (sa.exc.DBAPIError, psycopg2.Error, OSError) as error:
            faults.append(CatalogError(f"{self.name}: cannot be read: {str(error).strip()}"))
        except CatalogError as error:
            faults.append(error)
        except Exception as error:  # noqa: BLE001 - for whatever reason a stream ends early, it is not the table
            faults.append(CatalogError(f"{self.name}: cannot be read: {type(error).__name__}: {error}"))

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        """A cursor of psycopg2: SQLAlchemy knows no COPY."""
        engine = open_engine(self.url)
        try:
            with named_faults(engine), closing(engine.raw_connection()) as connection, closing(connection.cursor()) as cursor:
                yield cursor
        finally:
            engine.dispose()


def stored_tables(settings: Settings) -> list[StoredTable]:
    """List the tables of the databases that exist. Raises ``DatabaseDown``."""
    present, tables = existing_databases(settings), []
    for database in DATABASES:
        url = database_url(settings, database)
        if not present[str(url.database)]:
            continue
        engine = open_engine(url)
        try:
            with transaction(engine) as conn:
                rows = conn.execute(sa.text(_TABLES)).tuples().all()
        finally:
            engine.dispose()
        tables += [StoredTable(url, f"{database}.{schema}.{table}", int(size), schema, table) for schema, table, size in rows]
    return tables
