"""A database to work with, for as long as a command runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from modyn_dagster.catalog.databases import create_databases
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.catalog.engine import open_engine
from modyn_dagster.catalog.migrate import upgrade
from modyn_dagster.settings import Settings


@contextmanager
def running_database(settings: Settings) -> Iterator[bool]:
    """The server up, its three databases made, and the schema of this code in ours.

    Yields whether the embedded server was started for it; then, and only then, it is stopped at the end.
    """
    with _running_server(settings) as started:
        create_databases(settings)
        engine = open_engine(settings)
        try:
            upgrade(engine)
        finally:
            engine.dispose()
        yield started


@contextmanager
def _running_server(settings: Settings) -> Iterator[bool]:
    if settings.postgres_url is not None:
        yield False
        return
    server = EmbeddedPostgres(settings.home, settings.pg_bin)
    # Asked before the start: a start that is interrupted may have started it all the same.
    before = server.is_running()
    try:
        server.start()
        yield not before
    finally:
        if not before:
            server.stop()
