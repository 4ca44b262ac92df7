"""Servers for single tests, which stop and kill them, and a database without tables."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import open_engine, transaction
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.settings import Settings

# Only root can run the server under another account than its own.
collect_ignore = [] if os.geteuid() == 0 else ["test_embedded_as_root.py"]


@pytest.fixture
def new_server(scratch: Path) -> Iterator[EmbeddedPostgres]:
    """A server that was never started; stopped at the end."""
    embedded = EmbeddedPostgres(scratch / "home")
    yield embedded
    embedded.stop()


@pytest.fixture(scope="session")
def running_server(session_scratch: Path) -> Iterator[EmbeddedPostgres]:
    """A server that runs all the time, for tests that only read from it."""
    embedded = EmbeddedPostgres(session_scratch / "running")
    embedded.start()
    yield embedded
    embedded.stop()


@pytest.fixture(scope="session")
def _stopped_home(running_server: EmbeddedPostgres, session_scratch: Path) -> Path:
    home = session_scratch / "stopped"
    running_server.stop()
    subprocess.run(["cp", "-a", running_server.home, home], check=True)
    running_server.start()
    return home


@pytest.fixture
def server(_stopped_home: Path, new_server: EmbeddedPostgres) -> EmbeddedPostgres:
    """A server that was started once and does not run; stopped at the end. Copied from one made earlier: initdb is slow."""
    subprocess.run(["cp", "-a", _stopped_home, new_server.home], check=True)
    return new_server


@pytest.fixture
def owner(settings: Settings) -> Iterator[sa.Engine]:
    """Connections of the schema's owner to the fresh ``modyn`` database of ``settings``."""
    opened = open_engine(settings, "owner")
    yield opened
    opened.dispose()


@pytest.fixture
def empty(owner: sa.Engine) -> sa.Engine:
    """Connections of the schema's owner to a database without any table."""
    with transaction(owner) as connection:
        connection.execute(sa.text("drop schema public cascade"))
        connection.execute(sa.text("create schema public"))
    return owner
