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

from modyn_dagster.catalog.database.databases import upgrade
from modyn_dagster.catalog.database.engine import open_engine
from modyn_dagster.catalog.database.urls import DATABASES, database_url
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.settings import Settings
from tests.disk import do_not_wait_for_the_disk
from tests.suites import pytest_addoption, pytest_configure

__all__ = ["pytest_addoption", "pytest_configure"]

do_not_wait_for_the_disk()

_TEMPLATE = "migrated_template"


def pytest_collection_finish() -> None:
    """Freeze all that was imported and collected: it lives to the end, and the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """For ``--dist loadgroup``: who is given which tests, and in which order."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from tests.lanes import Lanes

    return Lanes(config, log)


@dataclass(frozen=True)
class RunningServer:
    """The session's server; ``maintenance`` runs statements outside transactions, on its own database."""

    embedded: EmbeddedPostgres
    url: sa.URL
    maintenance: sa.Engine

    def execute(self, statement: str) -> None:
        with self.maintenance.connect() as connection:
            connection.execute(sa.text(statement))

    def create_database(self, name: str, template: str = "template0") -> None:
        self.execute(f'create database "{name}" template "{template}"')

    def drop_database(self, name: str) -> None:
        self.execute(f'drop database if exists "{name}" with (force)')


@contextmanager
def _enterable_folder() -> Iterator[Path]:
    # For root not where TMPDIR says: that may be a place closed to others.
    parent = "/tmp" if os.geteuid() == 0 else None  # noqa: S108 - for the account that Postgres runs under
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
    """Like ``scratch``, one for the whole session."""
    with _enterable_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def postgres_server(session_scratch: Path) -> Iterator[RunningServer]:
    """The embedded server of this session."""
    embedded = EmbeddedPostgres(session_scratch / "server")
    url = embedded.start().url
    maintenance = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
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
    server.create_database(_TEMPLATE)
    engine = open_engine(server.url.set(database=_TEMPLATE))
    upgrade(engine)
    engine.dispose()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty folder to be ``MODYN_HOME``."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def settings(postgres_server: RunningServer, home: Path, tmp_path: Path) -> Iterator[Settings]:
    """Settings with databases of this test alone: ``modyn`` is there and migrated, the others can be created."""
    url = postgres_server.url.render_as_string(hide_password=False)
    chosen = Settings(tmp_path, home, postgres_url=url, database_prefix=f"t{secrets.token_hex(4)}_")
    postgres_server.create_database(f"{chosen.database_prefix}modyn", _TEMPLATE)
    yield chosen
    for name in DATABASES:
        postgres_server.drop_database(str(database_url(chosen, name).database))


@pytest.fixture
def engine(settings: Settings) -> Iterator[sa.Engine]:
    """Connections to the fresh ``modyn`` database of ``settings``."""
    opened = open_engine(settings)
    yield opened
    opened.dispose()
