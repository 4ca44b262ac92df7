"""Programs that `modyn-dagster ui` starts: ports, folders, and no secret where others can read it."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from modyn_dagster.cli.ui.code_location import CodeLocation
from modyn_dagster.cli.ui.services import HOST, daemon, free_port, mlflow, webserver
from modyn_dagster.errors import ConfigError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        yield listener


def folder(path: Path, *files: str) -> Path:
    path.mkdir()
    for name in files:
        (path / name).write_text("")
    return path


def test_a_free_port_is_taken_as_wanted() -> None:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    assert free_port(port) == port


def test_a_taken_port_gives_way_to_a_later_one(listener: socket.socket) -> None:
    taken = listener.getsockname()[1]
    found = free_port(taken)
    assert taken < found < taken + 50


def test_two_programs_that_want_one_port_get_two() -> None:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    assert free_port(port) < free_port(port, avoid=[port])


def test_ports_end_at_65535() -> None:
    with pytest.raises(ConfigError, match="port"):
        free_port(70_000)


def test_dagster_home_is_the_variable_before_the_current_folder_before_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = folder(tmp_path / "named", "dagster.yaml")
    here = folder(tmp_path / "here")
    project = folder(tmp_path / "project", "dagster.yaml")
    monkeypatch.chdir(here)
    assert CodeLocation.find(project, str(named)).dagster_home == named
    assert CodeLocation.find(project, None).dagster_home == project
    (here / "dagster.yaml").write_text("")
    assert CodeLocation.find(project, None).dagster_home == here


def test_a_project_without_settings_of_dagster_gets_ours_and_keeps_what_it_makes_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder(tmp_path / "here"))
    project = folder(tmp_path / "project")
    found = CodeLocation.find(project, None)
    assert (found.dagster_home, found.folder) == (project, project)
    for name in ("dagster.yaml", "workspace.yaml"):
        assert (project / name).read_bytes() == (ROOT / name).read_bytes()
    assert (
        capsys.readouterr().err == f"wrote dagster.yaml and workspace.yaml into {project}: Dagster's settings, yours to change\n"
    )
    (project / "dagster.yaml").write_text("# mine")
    assert CodeLocation.find(project, None) == found
    assert (project / "dagster.yaml").read_text() == "# mine"
    assert capsys.readouterr().err == ""
    assert sorted(path.name for path in project.iterdir()) == ["dagster.yaml", "workspace.yaml"]


def test_a_workspace_of_the_users_own_stays_when_dagster_yaml_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    project = folder(tmp_path / "project", "workspace.yaml")
    CodeLocation.find(project, None)
    assert (project / "workspace.yaml").read_text() == ""
    assert (project / "dagster.yaml").is_file()


def test_the_folder_that_dagster_home_names_gets_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    project, named = folder(tmp_path / "project"), folder(tmp_path / "named")
    assert CodeLocation.find(project, str(named)).dagster_home == named
    assert list(project.iterdir()) == []
    with pytest.raises(ConfigError, match=r"DAGSTER_HOME: must be a folder that exists \(found .*nowhere"):
        CodeLocation.find(project, str(tmp_path / "nowhere"))


def test_a_workspace_of_the_users_own_is_loaded_and_ours_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = folder(tmp_path / "home", "dagster.yaml")
    monkeypatch.chdir(home)
    assert CodeLocation.find(home, None).arguments == ["-m", "modyn_dagster.definitions"]
    (home / "workspace.yaml").write_text("")
    assert CodeLocation.find(home, None).arguments == ["-w", str(home / "workspace.yaml")]


def test_no_secret_stands_in_a_command_line(tmp_path: Path) -> None:
    url = "postgresql://postgres:secret-word@127.0.0.1:5432/mlflow"
    location = CodeLocation(tmp_path, tmp_path)
    environment = {"DAGSTER_PG_URL": url}
    services = [
        webserver(location, environment, 3000),
        daemon(location, environment, 3000),
        mlflow(environment, 5000, url, tmp_path),
    ]
    for service in services:
        assert "secret-word" not in " ".join(map(str, service.command))
        assert any("secret-word" in value for value in service.environment.values())


def test_a_service_that_is_not_there_does_not_answer(listener: socket.socket, tmp_path: Path) -> None:
    closed = listener.getsockname()[1]
    listener.close()
    location = CodeLocation(tmp_path, tmp_path)
    assert not webserver(location, {}, closed).answers()
    assert not daemon(location, {}, closed).answers()
    assert not mlflow({}, closed, "", tmp_path).answers()
