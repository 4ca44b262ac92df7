"""Passwords stay with those who know them, whoever listens on the server's port."""

from collections.abc import Callable
from pathlib import Path

import psycopg2
import psycopg2.extensions
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from dagster_postgres.utils import create_pg_engine

from modyn_dagster.catalog.access import authentication
from modyn_dagster.catalog.access.authentication import as_uri, authenticated
from modyn_dagster.catalog.database.engine import open_engine, transaction
from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.catalog.embedded.listening import can_hold_socket, free_port
from modyn_dagster.cli import main
from modyn_dagster.errors import CatalogError, DatabaseDown, TrackingError
from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.settings import Settings
from tests.catalog.impostor import CLEARTEXT, MD5, WELCOME, impostor

SECRET = "a-password-worth-stealing"


def catalog(settings: Settings) -> None:
    engine = open_engine(settings)
    with pytest.raises(DatabaseDown, match=r"no password was sent.*require_auth") as caught, transaction(engine):
        pass
    assert SECRET not in str(caught.value)
    engine.dispose()


def dagster(settings: Settings) -> None:
    engine = create_pg_engine(child_environment(settings)["DAGSTER_PG_URL"])
    with pytest.raises(sa.exc.OperationalError, match="authentication method requirement"):
        engine.connect()
    engine.dispose()


def mlflow(settings: Settings) -> None:
    with pytest.raises(TrackingError, match="authentication method requirement"):
        open_client(child_environment(settings)["MODYN_MLFLOW_URI"])


def mlflow_of_ones_own(settings: Settings) -> None:
    with pytest.raises(TrackingError, match="authentication method requirement"):
        open_client(f"{settings.postgres_url}/mlflow")


@pytest.mark.parametrize("client", [catalog, dagster, mlflow, mlflow_of_ones_own])
@pytest.mark.parametrize("question", [CLEARTEXT, MD5, WELCOME], ids=["cleartext", "md5", "no question"])
def test_an_impostor_on_the_servers_port_learns_no_password(
    question: bytes, client: Callable[[Settings], None], tmp_path: Path
) -> None:
    with impostor(question) as thief:
        client(Settings(tmp_path, tmp_path, postgres_url=f"postgresql://someone:{SECRET}@127.0.0.1:{thief.port}"))
    assert thief.clients
    assert thief.received == []


@pytest.mark.soak("laws-data")
@pytest.mark.parametrize("question", [CLEARTEXT, MD5], ids=["cleartext", "md5"])
def test_a_client_of_its_own_would_answer_the_impostor(question: bytes) -> None:
    with impostor(question) as thief, pytest.raises(psycopg2.OperationalError):
        psycopg2.connect(host="127.0.0.1", port=thief.port, user="someone", password=SECRET, require_auth="!none")
    assert len(thief.received) == 1
    assert (SECRET.encode() in thief.received[0]) == (question == CLEARTEXT)


@pytest.mark.soak("laws-data")
def test_whoever_takes_the_port_of_a_stopped_server_gets_nothing_from_our_commands(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.start(free_port())
    server.stop()
    monkeypatch.setenv("MODYN_HOME", str(server.home))
    monkeypatch.setenv("MODYN_PROJECT", str(Path(__file__).parents[2] / "examples" / "baseball"))
    for name in ("MODYN_POSTGRES_URL", "MODYN_DATABASE_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    with impostor(CLEARTEXT, server.status().port) as thief:
        for command in (["db", "status"], ["db", "upgrade"]):
            result = CliRunner().invoke(main, command)
            assert result.exit_code == 1
            assert "no password was sent" in result.output
        # This one starts the server, on a port that is free.
        assert CliRunner().invoke(main, ["pipeline", "status"]).exit_code == 0
        assert server.status().port != thief.port
    server.stop()
    assert thief.clients >= 2
    assert thief.received == []


def test_a_libpq_without_the_option_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    authentication.require_libpq.cache_clear()
    monkeypatch.setattr(psycopg2.extensions, "libpq_version", lambda: 150_014)
    with pytest.raises(CatalogError, match=r"libpq 15 here.*psycopg2-binary"):
        authenticated(sa.make_url("postgresql://me@db.example"))


def test_an_address_with_spaces_and_signs_reaches_libpq_unchanged() -> None:
    query = {"host": "/home/it's a 'home' + 100 %/postgres", "require_auth": "none"}
    url = sa.URL.create("postgresql+psycopg2", "me", "p+w %/", port=5433, database="modyn", query=query)
    parsed = psycopg2.extensions.parse_dsn(as_uri(url))
    assert parsed == {"user": "me", "password": "p+w %/", "port": "5433", "dbname": "modyn", **query}
    assert sa.make_url(as_uri(url)).query == url.query


def test_a_socket_needs_a_short_path_that_clients_can_name(tmp_path: Path) -> None:
    def holds(name: str) -> bool:
        (tmp_path / name).mkdir()
        return can_hold_socket(tmp_path / name)

    room = 107 - len(f"{tmp_path}/" + "/.s.PGSQL.20000")
    assert holds("a" * room)
    assert not holds("b" * (room + 1))
    assert not holds("c,d")
    assert not can_hold_socket(tmp_path / "missing")
