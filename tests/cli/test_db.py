"""``modyn-dagster db``: the embedded server, an existing one, and the schema."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.cli import main
from modyn_dagster.settings import Settings


@pytest.fixture
def embedded(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedPostgres]:
    """Environment with nothing but ``MODYN_HOME`` set."""
    for name in ("MODYN_POSTGRES_URL", "MODYN_DATABASE_PREFIX", "MODYN_PG_BIN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MODYN_HOME", str(scratch / "home"))
    server = EmbeddedPostgres(scratch / "home")
    yield server
    server.stop()


@pytest.fixture
def given(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The environment names a server that runs, where ``modyn`` is migrated and the other databases are missing."""
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MODYN_POSTGRES_OWNER_URL", str(settings.postgres_owner_url))
    return settings


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["db", *arguments])


@pytest.mark.process
def test_from_nothing_to_ready_and_stopped(embedded: EmbeddedPostgres) -> None:
    for command in ("status", "upgrade", "env"):
        result = run(command)
        assert result.exit_code == 1
        assert "`modyn-dagster db start`" in result.output
    assert run("start").output.startswith(f"Postgres started: modyn_writer@{embedded.home}/postgres:")
    assert run("start").output.startswith("Postgres runs already: ")
    unready = run("status")
    assert "run `modyn-dagster db upgrade`" in run("start").output
    assert unready.exit_code == 1
    assert unready.output.count("run `modyn-dagster db upgrade`") == 4
    assert "created database mlflow" in run("upgrade").output
    assert "up to date" in run("upgrade").output
    ready = run("status", "--json")
    assert ready.exit_code == 0
    found = json.loads(ready.output)
    assert found["ready"]
    assert found["server"]["pid"] == embedded.status().pid
    assert str(embedded.url.password) not in ready.output + run("status").output
    assert run("stop").output == "Postgres stopped\n"
    assert run("stop").output == "Postgres was not running\n"
    down = run("status")
    assert down.exit_code == 1
    assert "No such file or directory" in down.output


@pytest.mark.soak("screens")
@pytest.mark.process
def test_a_port_that_cannot_be_had_is_an_error_that_names_it(embedded: EmbeddedPostgres) -> None:
    assert run("start", "--port", "70000").exit_code == 2
    run("start")
    result = run("start", "--port", "1")
    assert result.exit_code == 1
    assert "must be its socket, where the server runs already" in result.output


def test_a_given_server_is_neither_started_nor_stopped(given: Settings) -> None:
    assert "nothing to start" in run("start").output
    assert "is not ours to stop" in run("stop").output
    assert not (given.home / "postgres.json").exists()


def test_upgrade_makes_what_is_missing_on_a_given_server(given: Settings) -> None:
    assert run("status").exit_code == 1
    assert f"created database {given.database_prefix}dagster" in run("upgrade").output
    status = run("status")
    assert status.exit_code == 0
    assert "process" not in status.output


def test_env_gives_a_shell_the_variables_of_child_processes(given: Settings) -> None:
    script = run("env").output + "env -0"
    shell = subprocess.run(["sh", "-c", script], env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=True)
    variables = dict(line.split("=", 1) for line in shell.stdout.decode().split("\0") if line)
    assert child_environment(given).items() <= variables.items()
