"""A server with its databases for the duration of a command, started where none runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from modyn_dagster.catalog.database.databases import create_databases, existing_databases, upgrade
from modyn_dagster.catalog.database.engine import current_revision, open_engine
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.catalog.embedded.users import in_use, stop_unless_used
from modyn_dagster.catalog.revisions import head_revision
from modyn_dagster.cli.console import say
from modyn_dagster.settings import Settings


@contextmanager
def running_database(settings: Settings) -> Iterator[bool]:
    """Provide a running server with the three databases and the current schema.

    Yields whether the embedded server was started for this. Only then it is stopped at the end, unless another command uses it.
    """
    with _running_server(settings) as started:
        prepare_databases(settings)
        yield started


@contextmanager
def started_database(settings: Settings) -> Iterator[None]:
    """Provide the embedded server with the three databases and the current schema, and leave it running.

    The next command finds it there, and others may use it at the same time; it runs until ``modyn-dagster db stop``. A server of
    ``MODYN_POSTGRES_URL`` is left as it is.
    """
    if settings.postgres_url is not None:
        yield
        return
    server = EmbeddedPostgres(settings.home, settings.pg_bin)
    with in_use(settings.home):
        if not server.is_running():
            say("starting Postgres ...", err=True)
        if server.start().started_by_us:
            say("Postgres runs until `modyn-dagster db stop`.", err=True)
        prepare_databases(settings)
        yield


def prepare_databases(settings: Settings) -> None:
    """Create the databases that are missing and bring the schema up to date, unless everything is there."""
    if all(existing_databases(settings).values()) and _revision(settings) == head_revision():
        return
    create_databases(settings)
    engine = open_engine(settings, "owner")
    try:
        upgrade(engine)
    finally:
        engine.dispose()


def _revision(settings: Settings) -> str | None:
    engine = open_engine(settings)
    try:
        return current_revision(engine)
    finally:
        engine.dispose()


@contextmanager
def _running_server(settings: Settings) -> Iterator[bool]:
    if settings.postgres_url is not None:
        yield False
        return
    server = EmbeddedPostgres(settings.home, settings.pg_bin)
    # Checked before the start: an interrupted start may have started the server all the same.
    before = server.is_running()
    try:
        with in_use(settings.home):
            server.start()
            yield not before
    finally:
        if not before and not stop_unless_used(server):
            say("Another command uses Postgres, so it runs on, until `modyn-dagster db stop`.", err=True)
