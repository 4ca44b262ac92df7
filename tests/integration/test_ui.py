"""`modyn-dagster ui` and `up` as a user runs them: real servers, started, refused twice, killed, broken and stopped."""

import http
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.catalog.embedded.users import in_use
from modyn_dagster.cli.ui.processes import MARK, stop_leftovers

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "baseball"
PROGRAM = [sys.executable, "-c", "from modyn_dagster.cli import main; main()"]
PORTS = ["--port", "4300", "--mlflow-port", "5300"]
COMMAND = [*PROGRAM, "ui", *PORTS]


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


@pytest.fixture
def home() -> Iterator[Path]:
    """Not in pytest's own folder: the account of the embedded server may not enter that."""
    folder = Path(tempfile.mkdtemp(prefix="modyn-ui-"))
    folder.chmod(0o711)
    home = folder / "home"
    yield home
    stop_leftovers(home / "logs")
    EmbeddedPostgres(home).stop()
    shutil.rmtree(folder)


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    cleared = {name: value for name, value in os.environ.items() if not name.startswith(("MODYN_", "DAGSTER_", "MLFLOW_"))}
    return {**cleared, "MODYN_HOME": str(home), "MODYN_PROJECT": str(EXAMPLE)}


@pytest.fixture
def project(home: Path) -> Path:
    """A folder with specs and nothing of Dagster's."""
    folder = home.with_name("project")
    for kind in ("datasets", "pipelines"):
        shutil.copytree(EXAMPLE / kind, folder / kind)
    return folder


class Ui:
    """A running command whose output goes to a file."""

    def __init__(self, command: list[str], environment: dict[str, str], output: Path) -> None:
        self._output = output
        with open(output, "wb") as file:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT)

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def urls(self) -> dict[str, str]:
        lines = (line.split() for line in self.output.splitlines())
        return {line[0]: line[1] for line in lines if len(line) == 2 and line[1].startswith("http://")}

    def wait_until(self, true: Callable[[], bool]) -> None:
        wait_for(lambda: true() or self.process.poll() is not None, 120)
        assert self.process.poll() is None, self.output


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Ui]]:
    started: list[Ui] = []

    def start(command: list[str] = COMMAND) -> Ui:
        started.append(Ui(command, environment, tmp_path / f"output-{len(started)}.txt"))
        return started[-1]

    yield start
    for ui in started:
        ui.process.kill()
        ui.process.wait()


def get(url: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=20) as answer:
        return str(answer.read().decode())


def refusal_under_another_name(url: str) -> str:
    request = urllib.request.Request(url, headers={"Host": "evil.example"})  # noqa: S310 - an http address of ours
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20)
    assert caught.value.code == http.HTTPStatus.FORBIDDEN
    return caught.value.read().decode()


def marked(home: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(home / "logs"):
                found.append(process)
        except psutil.Error:
            continue
    return found


def services_of(ui: Ui, home: Path) -> dict[str, psutil.Process]:
    """The programs that a command has started, by the names of their files."""
    found = {}
    for process in marked(home):
        # One that has just ended has no parent, and one that ends no command line.
        with suppress(psutil.NoSuchProcess, IndexError):
            if process.ppid() == ui.process.pid:
                found[Path(process.cmdline()[1]).name] = process
    return found


def test_one_whose_service_dies_stops_the_others_and_says_so(start: Callable[..., Ui], home: Path) -> None:
    ui = start()
    ui.wait_until(lambda: "mlflow" in services_of(ui, home))
    services_of(ui, home)["mlflow"].kill()
    assert ui.process.wait(timeout=60) == 1
    assert "error: mlflow ended with signal SIGKILL, so all were stopped" in ui.output
    assert "Traceback" not in ui.output.partition("error: ")[0]
    assert marked(home) == []
    assert not EmbeddedPostgres(home).is_running()


@pytest.mark.soak("production")
def test_a_killed_one_is_tidied_up_and_both_pages_of_the_next_answer_until_ctrl_c_stops_everything(
    start: Callable[..., Ui], environment: dict[str, str], home: Path, project: Path
) -> None:
    killed = start()
    killed.wait_until(lambda: len(services_of(killed, home)) == 3)
    killed.process.kill()
    killed.process.wait()
    left = {process.pid for process in marked(home)}
    assert left

    ui = start([*PROGRAM, "up", str(project), *PORTS])
    ui.wait_until(lambda: "Ctrl-C" in ui.output)
    assert f"wrote dagster.yaml and workspace.yaml into {project}" in ui.output
    assert "a killed `modyn-dagster ui` had left behind" in ui.output
    services = marked(home)
    assert len(services) >= 3
    assert not left & {process.pid for process in services}
    assert "No batch was ingested yet" in ui.output
    assert "dagster" in get(ui.urls["Dagster"]).lower()
    assert "mlflow" in get(ui.urls["MLflow"]).lower()
    assert all("MODYN_UI_ALLOWED_HOSTS" in refusal_under_another_name(url) for url in ui.urls.values())
    password = EmbeddedPostgres(home).url.password
    assert password
    assert not any(password in " ".join(process.cmdline()) for process in services)
    assert not any(password in log.read_text() for log in (home / "logs").iterdir())

    second = subprocess.run(COMMAND, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    for part in (f"process {ui.process.pid}", *ui.urls.values(), "already running"):
        assert part in second.stderr
    assert "Traceback" not in second.stderr

    ui.process.send_signal(signal.SIGINT)
    assert ui.process.wait(timeout=60) == 0
    assert ui.output.endswith("stopping ...\nstopped\n")
    assert marked(home) == []
    # The account of root's server comes through the home; everything below is closed, logs of MLflow and Dagster too.
    assert home.stat().st_mode & 0o077 == (0o011 if os.geteuid() == 0 else 0)
    assert [path for path in home.rglob("*") if not path.is_symlink() and path.stat().st_mode & 0o077] == []
    # The killed one had started Postgres; the one after it found it running and left it so.
    assert EmbeddedPostgres(home).is_running()


@pytest.mark.soak("kills-daemons")
def test_terminated_up_stops_all_it_started_but_not_the_server_under_another_command(
    start: Callable[..., Ui], environment: dict[str, str], home: Path, project: Path
) -> None:
    (project / "pipelines" / "impossible.yaml").write_text("name: impossible")
    command = [*PROGRAM, "up", str(project), *PORTS]
    refused = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (refused.returncode, home.exists()) == (1, False)
    assert refused.stderr.count("error: ") == 4
    (project / "pipelines" / "impossible.yaml").unlink()

    up = start(command)
    up.wait_until(lambda: "Ctrl-C" in up.output)
    with in_use(home):  # as another command holds it
        up.process.send_signal(signal.SIGTERM)
        assert up.process.wait(timeout=60) == 0
    assert up.output.endswith(
        "stopping ...\nAnother command uses Postgres, so it runs on, until `modyn-dagster db stop`.\nstopped\n"
    )
    assert marked(home) == []
    assert EmbeddedPostgres(home).is_running()

    EmbeddedPostgres(home).stop()
    up = start(command)
    up.wait_until(lambda: "Ctrl-C" in up.output)
    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(timeout=60) == 0
    assert up.output.endswith("stopping ...\nstopped\n")
    assert marked(home) == []
    assert not EmbeddedPostgres(home).is_running()
