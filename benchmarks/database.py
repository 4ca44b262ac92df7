"""Postgres server for the benchmark, started as the product starts it, and its cost."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import sqlalchemy as sa

from modyn_dagster.catalog.database.databases import create_databases, upgrade
from modyn_dagster.catalog.database.engine import open_engine
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.settings import Settings


@dataclass(frozen=True)
class Database:
    """The ``modyn`` database of a running server.

    Attributes:
        home: folder of batches and shards, and of the server's files.
        engine: connections of this process.
        server: the server's first process.
    """

    home: Path
    engine: sa.Engine
    server: psutil.Process

    @property
    def url(self) -> str:
        """For another process; holds the password."""
        return self.engine.url.render_as_string(hide_password=False)

    def execute(self, *statements: str) -> None:
        """Run statements outside of transactions."""
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
            for statement in statements:
                conn.execute(sa.text(statement))

    def settle(self) -> None:
        """Write out what is dirty, so that a repetition does not pay for the one before."""
        self.execute("checkpoint")

    def cpu_seconds(self) -> float:
        """CPU time of the server so far: its first process, those below it, and those that have ended."""
        own = self.server.cpu_times()
        running = 0.0
        for child in self.server.children():
            try:
                times = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            running += times.user + times.system
        return float(own.user + own.system + own.children_user + own.children_system + running)


@contextmanager
def database(folder: Path) -> Iterator[Database]:
    """Make, start and in the end stop a server below ``folder``; the databases are migrated."""
    # A server that root starts runs under another account, which has to come this far.
    folder.chmod(0o711)
    embedded = EmbeddedPostgres(folder / "home")
    running = embedded.start()
    server = psutil.Process(embedded.status().pid)
    try:
        settings = Settings(folder, folder / "home", postgres_url=running.url.render_as_string(hide_password=False))
        create_databases(settings)
        engine = open_engine(settings)
        try:
            upgrade(engine)
            yield Database(settings.home, engine, server)
        finally:
            engine.dispose()
    finally:
        embedded.stop()
