"""Installations for the tests of the whole, and the warm process that the killed ones are forked from."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.embedded import EmbeddedPostgres
from tests.conftest import RunningServer
from tests.integration.harness.fork_server import ForkServer


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Everything heavy is imported once per worker."""
    server = ForkServer(tmp_path_factory.mktemp("forks") / "log.txt")
    yield server
    server.stop()


@pytest.fixture
def own_server(scratch: Path) -> Iterator[RunningServer]:
    """A server that nobody else needs."""
    embedded = EmbeddedPostgres(scratch / "postgres")
    url = embedded.start().url
    try:
        yield RunningServer(embedded, url, sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool))
    finally:
        embedded.stop()
