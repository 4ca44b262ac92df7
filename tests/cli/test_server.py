"""Commands that need Postgres start it, share it with others, and leave it running or stop it as they said."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from modyn_dagster.catalog.database.databases import health_of
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.catalog.embedded.users import in_use, stop_unless_used
from modyn_dagster.cli import main
from modyn_dagster.cli.server import running_database
from modyn_dagster.settings import Settings

PROJECT = Path(__file__).parents[2] / "examples" / "baseball"
COMMAND = [sys.executable, "-c", "from modyn_dagster.cli import main; main()", "dataset", "status", "--json"]

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def home(session_scratch: Path) -> Iterator[Path]:
    """A folder of state that does not exist before the first test."""
    yield session_scratch / "commands"
    EmbeddedPostgres(session_scratch / "commands").stop()


@pytest.fixture
def server(home: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddedPostgres:
    """The environment names the folder and a project; nothing runs."""
    for name in ("MODYN_POSTGRES_URL", "MODYN_DATABASE_PREFIX", "MODYN_PG_BIN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MODYN_HOME", str(home))
    monkeypatch.setenv("MODYN_PROJECT", str(PROJECT))
    EmbeddedPostgres(home).stop()
    return EmbeddedPostgres(home)


def test_a_spec_that_is_impossible_is_told_before_anything_is_started(
    server: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "d.yaml").write_text("name: d")
    monkeypatch.setenv("MODYN_PROJECT", str(tmp_path))
    assert CliRunner().invoke(main, ["pipeline", "status"]).exit_code == 1
    assert not server.home.exists()


@pytest.mark.soak("screens")
def test_two_commands_at_once_start_one_server_make_its_databases_and_leave_it_running(server: EmbeddedPostgres) -> None:
    both = [
        subprocess.Popen(COMMAND, env=os.environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in both]
    assert [(process.returncode, output) for process, (output, _) in zip(both, outputs)] == [(0, "[]\n"), (0, "[]\n")], outputs
    assert sum("Postgres runs until `modyn-dagster db stop`." in told for _, told in outputs) == 1
    assert health_of(Settings.from_environment()).ready
    again = CliRunner().invoke(main, ["pipeline", "status", "--json"])
    assert (again.exit_code, again.stdout, again.stderr) == (0, "[]\n", "")


@pytest.mark.soak("screens")
def test_a_server_that_a_command_started_for_itself_goes_on_for_the_others(
    server: EmbeddedPostgres, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings.from_environment()
    with running_database(settings) as started:
        assert started
        # Another command, which came later and takes longer.
        other = in_use(settings.home)
        other.__enter__()
    assert server.is_running()
    assert "Another command uses Postgres, so it runs on" in capsys.readouterr().err
    assert not stop_unless_used(server)
    other.__exit__(None, None, None)
    with running_database(settings) as started:
        assert not started
    assert server.is_running()
    assert stop_unless_used(server)
    assert not server.is_running()
