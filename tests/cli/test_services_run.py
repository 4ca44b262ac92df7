"""`services run` and `services health`: health over HTTP, passwords beyond this machine, and an end that leaves nothing."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import psutil
import pytest
from click.testing import CliRunner
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from modyn_dagster.catalog.database.databases import create_databases
from modyn_dagster.cli import main
from modyn_dagster.cli.services import programs
from modyn_dagster.cli.services.foreground import Watch, require_password, run_in_foreground
from modyn_dagster.cli.services.health import PATH, Health, ask, health_server
from modyn_dagster.cli.ui.code_location import CodeLocation
from modyn_dagster.cli.ui.processes import Service, stop_leftovers
from modyn_dagster.errors import AlreadyRunning, ConfigError, SchemaOutdated, ServiceEnded
from modyn_dagster.settings import Settings
from tests.integration.harness.waiting import wait_for

ROOT = Path(__file__).parents[2]
#: A service of ours that needs no Dagster: it starts a child in a session of its own, and tells both numbers.
PROGRAM = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""
FOREGROUND = f"""
import sys
from pathlib import Path
from modyn_dagster.cli.services import foreground
from modyn_dagster.cli.ui.code_location import CodeLocation
from modyn_dagster.cli.ui.processes import Service
from modyn_dagster.settings import Settings
settings, folder = Settings.from_environment(), Path.cwd()
service = Service("probe", [sys.executable, "-c", {PROGRAM!r}], {{}}, lambda: (folder / "well").exists())
watch = foreground.Watch("127.0.0.1", int(sys.argv[1]), 5)
foreground.run_in_foreground(settings, CodeLocation(folder, folder), service, watch, "nowhere")
"""


@pytest.fixture
def free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(port: int, path: str = PATH, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_health_is_200_while_the_service_answers_and_503_while_it_does_not_or_cannot_be_asked(free: int) -> None:
    answers = iter([True, False])

    def answer() -> bool:
        for found in answers:
            return found
        raise RuntimeError("cannot be asked")

    for expected in (http.HTTPStatus.OK, http.HTTPStatus.SERVICE_UNAVAILABLE, http.HTTPStatus.SERVICE_UNAVAILABLE):
        # Another one each time: an answer is kept for a second.
        with health_server(Health("daemon", answer), "127.0.0.1", free):
            status, body = get(free)
            assert status == expected
            assert json.loads(body) == {"service": "daemon", "healthy": expected == http.HTTPStatus.OK}
            assert ask("127.0.0.1", free) == (expected == http.HTTPStatus.OK)


def test_many_who_ask_at_once_ask_the_service_once(free: int) -> None:
    asked: list[int] = []

    def answer() -> bool:
        asked.append(1)
        return True

    with health_server(Health("code", answer), "127.0.0.1", free):
        threads = [threading.Thread(target=get, args=[free]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(asked) <= 2


@pytest.mark.parametrize(("method", "path"), [("GET", "/"), ("GET", f"{PATH}/../etc"), ("POST", PATH), ("PUT", PATH)])
def test_a_health_server_answers_nothing_else(free: int, method: str, path: str) -> None:
    with health_server(Health("code", lambda: True), "127.0.0.1", free):
        assert get(free, path, method)[0] in (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.NOT_IMPLEMENTED)


def test_a_taken_port_of_the_health_server_is_named(free: int) -> None:
    with (
        health_server(Health("code", lambda: True), "127.0.0.1", free),
        pytest.raises(ConfigError, match=f"--health-port.*{free}"),
        health_server(Health("code", lambda: True), "127.0.0.1", free),
    ):
        pass


def test_the_command_asks_a_service_for_its_health(free: int) -> None:
    command = ["services", "health", "code", "--health-port", str(free)]
    assert (CliRunner().invoke(main, command).exit_code, ask("127.0.0.1", free)) == (1, False)
    with health_server(Health("code", lambda: True), "127.0.0.1", free):
        assert CliRunner().invoke(main, command).output == "healthy\n"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3"])  # noqa: S104 - nothing is bound
def test_pages_that_other_machines_reach_need_a_password(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODYN_UI_TOKEN", "MODYN_UI_TOKEN_FILE", "MODYN_UI_USER_HEADER"):
        monkeypatch.delenv(name, raising=False)
    require_password({}, "127.0.0.1")
    with pytest.raises(ConfigError, match="MODYN_UI_TOKEN_FILE"):
        require_password({}, host)
    require_password({"MODYN_UI_TOKEN": "x" * 16}, host)
    require_password({"MODYN_UI_USER_HEADER": "X-Forwarded-User"}, host)


def test_a_path_that_is_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    location = CodeLocation(tmp_path, tmp_path)
    with pytest.raises(ConfigError, match="at most 107 bytes"):
        programs.code(location, {}, f"unix:{tmp_path}/{'x' * 107}")


def test_a_code_location_listens_on_a_socket_in_a_closed_folder_or_on_a_port(tmp_path: Path) -> None:
    location = CodeLocation(tmp_path, tmp_path)
    closed = Path(tempfile.mkdtemp()) / "closed"  # a short path
    try:
        by_socket = [str(part) for part in programs.code(location, {}, f"unix:{closed}/code.sock").command]
        assert by_socket[-2:] == ["--socket", f"{closed}/code.sock"]
        assert closed.stat().st_mode & 0o066 == 0
    finally:
        shutil.rmtree(closed.parent)
    by_port = [str(part) for part in programs.code(location, {}, "10.0.0.7:4000").command]
    assert by_port[-4:] == ["--host", "10.0.0.7", "--port", "4000"]
    by_ipv6 = [str(part) for part in programs.code(location, {}, ":::4000").command]
    assert by_ipv6[-4:] == ["--host", "[::]", "--port", "4000"]


@pytest.mark.parametrize(
    ("host", "listening"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]"), ("::", "[::1]"), (None, "")],  # noqa: S104 - nothing is bound there
)
def test_a_code_location_is_asked_for_its_health_wherever_it_listens(host: str | None, listening: str, tmp_path: Path) -> None:
    if listening == "[::1]" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    server = grpc.server(ThreadPoolExecutor(1))
    servicer = health.HealthServicer()
    servicer.set("DagsterApi", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    with tempfile.TemporaryDirectory() as short:
        socket = f"unix:{short}/code.sock"
        port = server.add_insecure_port(socket if host is None else f"{listening}:0")
        server.start()
        try:
            address = socket if host is None else f"{host}:{port}"
            assert programs.code(CodeLocation(tmp_path, tmp_path), {}, address).answers()
        finally:
            server.stop(None).wait()


def test_socket_and_port_exclude_each_other() -> None:
    result = CliRunner().invoke(main, ["services", "run", "code", "--socket", "x", "--port", "4000"])
    assert result.exit_code == 2


class Running:
    """A service in the foreground of another process."""

    def __init__(self, settings: Settings, folder: Path, port: int) -> None:
        environment = os.environ | settings.environment() | {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", FOREGROUND, str(port)]
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.child = psutil.Process(int(self.process.stdout.readline() or self.process.communicate()[1]))


@pytest.fixture
def running(settings: Settings, tmp_path: Path, free: int) -> Iterator[Running]:
    create_databases(settings)
    running = Running(settings, tmp_path, free)
    yield running
    stop_leftovers(settings.home / "services" / f"probe@{socket.gethostname()}")
    running.process.kill()
    running.process.communicate()


@pytest.mark.soak("screens")
@pytest.mark.process
def test_one_service_of_a_name_runs_and_term_ends_all_its_processes_with_exit_code_0(
    running: Running, settings: Settings, tmp_path: Path, free: int
) -> None:
    wait_for("its health server", lambda: get(free)[0] if ask_port(free) else None)
    assert not ask("127.0.0.1", free)
    (tmp_path / "well").touch()
    wait_for("its health", lambda: ask("127.0.0.1", free))

    service = Service("probe", [sys.executable, "-c", ""], {}, lambda: True)
    location, watch = CodeLocation(tmp_path, tmp_path), Watch("127.0.0.1", 0, 5)
    with pytest.raises(AlreadyRunning, match=f"`modyn-dagster services run probe`.*process {running.process.pid}, probe at"):
        run_in_foreground(settings, location, service, watch, "nowhere")

    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(20) == 0
    # Where the first process of a container reaps nobody, what has ended stays as a zombie.
    assert not running.child.is_running() or running.child.status() == psutil.STATUS_ZOMBIE
    assert not ask("127.0.0.1", free)


@pytest.mark.process
def test_a_service_that_ends_by_itself_ends_the_command_with_a_sentence(settings: Settings, tmp_path: Path) -> None:
    create_databases(settings)
    service = Service("probe", [sys.executable, "-c", "raise SystemExit(7)"], {}, lambda: True)
    location, watch = CodeLocation(tmp_path, tmp_path), Watch("127.0.0.1", 0, 5)
    with pytest.raises(ServiceEnded, match="probe ended with exit code 7; its output above says why"):
        run_in_foreground(settings, location, service, watch, "nowhere")


def test_a_service_without_its_databases_names_the_command_that_makes_them(settings: Settings, tmp_path: Path) -> None:
    service = Service("probe", ["never started"], {}, lambda: True)
    with pytest.raises(SchemaOutdated, match="modyn-dagster db upgrade"):
        run_in_foreground(settings, CodeLocation(tmp_path, tmp_path), service, Watch("127.0.0.1", 0, 5), "nowhere")


def ask_port(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
