"""A Postgres server per test session (per worker under xdist), and a fresh, migrated database per test."""

import gc
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Several processes of pytest share the cores, and threads of torch that wait for each other take most of their time there.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.access.authentication import as_uri
from modyn_dagster.catalog.access.roles import DATABASES, EMBEDDED
from modyn_dagster.catalog.database.databases import create_databases, upgrade
from modyn_dagster.catalog.database.engine import open_engine
from modyn_dagster.catalog.database.urls import database_url
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.settings import Settings
from tests.disk import do_not_wait_for_the_disk, roomy_memory
from tests.suites import pytest_addoption, pytest_configure, pytest_xdist_make_scheduler

__all__ = ["pytest_addoption", "pytest_configure", "pytest_xdist_make_scheduler"]

do_not_wait_for_the_disk()

#: Database that is migrated; tests have copies of it.
TEMPLATE = "template_modyn"


def pytest_collection_finish() -> None:
    """Freeze all that was imported and collected: it lives to the end, and the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class RunningServer:
    """The session's server; ``maintenance`` runs the superuser's statements outside transactions, on its own database."""

    embedded: EmbeddedPostgres
    url: sa.URL
    maintenance: sa.Engine

    def settings(self, project: Path, home: Path, prefix: str) -> Settings:
        """Settings as an administrator would give them: one role that writes, one that owns the schemas."""
        writer, owner = (as_uri(self.embedded.url_of(role)) for role in ("writer", "owner"))
        return Settings(project, home, postgres_url=writer, postgres_owner_url=owner, database_prefix=prefix)

    def execute(self, statement: str) -> None:
        with self.maintenance.connect() as connection:
            connection.execute(sa.text(statement))

    def create_database(self, name: str, template: str = "template0") -> None:
        self.execute(f'create database "{name}" owner {EMBEDDED.owner} template "{template}" strategy file_copy')

    def plain_address(self, name: str) -> str:
        """Address of a database as MLflow takes it."""
        return self.url.set(drivername="postgresql", database=name).render_as_string(hide_password=False)

    def drop_database(self, name: str) -> None:
        self.execute(f'drop database if exists "{name}" with (force)')


@contextmanager
def _enterable_folder(parent: Path | None = None) -> Iterator[Path]:
    # For root not where TMPDIR says: that may be a place closed to others.
    if parent is None and os.geteuid() == 0:
        parent = Path("/tmp")  # noqa: S108 - for the account that Postgres runs under
    folder = Path(tempfile.mkdtemp(prefix="modyn-tests-", dir=parent))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """An empty folder that every account may enter, so that a server started as root can have its files there."""
    with _enterable_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def session_scratch() -> Iterator[Path]:
    """Like ``scratch``, one for the whole session; in memory where there is room, where databases are made much faster."""
    with _enterable_folder(roomy_memory()) as folder:
        yield folder


@pytest.fixture(scope="session")
def postgres_server(session_scratch: Path) -> Iterator[RunningServer]:
    """The embedded server of this session."""
    embedded = EmbeddedPostgres(session_scratch / "server")
    url = embedded.start().url
    # A connection is kept: every test makes a database and drops several.
    maintenance = sa.create_engine(url, isolation_level="AUTOCOMMIT", pool_size=1, pool_pre_ping=True)
    try:
        server = RunningServer(embedded, url, maintenance)
        _prepare(server)
        yield server
    finally:
        maintenance.dispose()
        embedded.stop()


def _prepare(server: RunningServer) -> None:
    # These databases need not survive a power cut.
    server.execute("alter system set fsync = off")
    server.execute("select pg_reload_conf()")
    settings = server.settings(Path(), Path(), "template_")
    create_databases(settings)
    engine = open_engine(settings, "owner")
    upgrade(engine)
    engine.dispose()


@pytest.fixture(scope="session")
def mlflow_uri(postgres_server: RunningServer) -> Iterator[str]:
    """Address of a database that MLflow has made its tables in, for the session: tests have pipelines of their own names."""
    from modyn_dagster.reporting.mlflow.client import open_client

    name = f"mlflow_{secrets.token_hex(4)}"
    postgres_server.create_database(name)
    uri = postgres_server.plain_address(name)
    open_client(uri)
    yield uri
    postgres_server.drop_database(name)


@pytest.fixture(autouse=True)
def _same_umask() -> Iterator[None]:
    """Commands and the definitions close the files of their process to others; tests after them expect nothing of it."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty folder to be ``MODYN_HOME``."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def settings(postgres_server: RunningServer, home: Path, tmp_path: Path) -> Iterator[Settings]:
    """Settings with databases of this test alone: ``modyn`` is there and migrated, the others can be created."""
    chosen = postgres_server.settings(tmp_path, home, f"t{secrets.token_hex(4)}_")
    postgres_server.create_database(f"{chosen.database_prefix}modyn", TEMPLATE)
    yield chosen
    for name in DATABASES:
        postgres_server.drop_database(str(database_url(chosen, name).database))


@pytest.fixture
def engine(settings: Settings) -> Iterator[sa.Engine]:
    """Connections to the fresh ``modyn`` database of ``settings``."""
    opened = open_engine(settings)
    yield opened
    opened.dispose()
