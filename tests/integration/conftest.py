"""Installations for the tests of the whole, and the warm process that the killed ones are forked from."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.embedded import EmbeddedPostgres
from tests.conftest import RunningServer
from tests.integration.harness.deployment import deployed
from tests.integration.harness.fork_server import ForkServer
from tests.integration.harness.servers import Servers, served
from tests.projects.tiny import DATASET, amount, batch_text, drop, timed


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


@pytest.fixture(scope="session")
def installation(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Ten imported batches, two pipelines, webserver and daemon; for tests of one xdist group."""
    with deployed(postgres_server, tmp_path_factory.mktemp("backfills"), [amount(), timed()]) as deployment:
        for day in range(10):
            drop(deployment.project, f"day_{day:02d}", batch_text(day))
        deployment.command("dataset", "import", DATASET)
        with served(deployment) as servers:
            yield servers


@pytest.fixture(scope="session")
def launched_backfill(installation: Servers) -> str:
    """Id of a backfill of ``by_amount/replay``, launched by GraphQL before the page's: a daemon takes a minute for either."""
    return installation.graphql.launch_backfill(["by_amount", "replay"], list(installation.deployment.states()))
