"""An installation of separate services, as systemd or containers run them: ``modyn-dagster services run`` four times."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import yaml

from modyn_dagster.cli.services.health import ask
from modyn_dagster.cli.ui.processes import MARK
from modyn_dagster.cli.ui.services import free_port
from tests.integration.harness.deployment import Deployment
from tests.integration.harness.graphql import GraphQL
from tests.integration.harness.waiting import wait_for

SERVICES: Final = ("mlflow", "code", "webserver", "daemon")
#: Also this machine, but no name that our launcher takes for it: the code location stands in for one of another machine.
ELSEWHERE: Final = "127.0.0.2"
_START_SECONDS: Final = 240
_END_SECONDS: Final = 90
_FIRST_PORT: Final = 20_000
_SECRET: Final = ("MODYN_POSTGRES_URL", "MODYN_POSTGRES_OWNER_URL", "MODYN_MLFLOW_URI", "DAGSTER_PG_URL")


class Stack:
    """The services of a deployment; they learn Postgres and the password of the pages from files."""

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        self.deployment = deployment
        self.folder = folder
        self.token = secrets.token_hex(16)
        shipped = deployment.project / "dagster.yaml"
        shipped.write_text(shipped.read_text().replace("ask_code_server: false", "ask_code_server: true"))
        ports: list[int] = []
        for _ in range(7):
            ports.append(free_port(_FIRST_PORT + os.getpid() % 8_000, avoid=ports))
        self.port, self.mlflow_port, self.code_port, *health = ports
        self.health_ports = dict(zip(SERVICES, health))
        self.graphql = GraphQL(f"http://127.0.0.1:{self.port}", self._programs, self.token)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a service: no secret in it, but the names of files."""
        environment = {name: value for name, value in self.deployment.environment.items() if name not in _SECRET}
        files = {"MODYN_POSTGRES_URL": self.deployment.settings.postgres_url, "MODYN_UI_TOKEN": self.token}
        for name, value in files.items():
            path = self.folder / name.lower()
            path.write_text(f"{value}\n")
            path.chmod(0o444)  # as containers mount them
            environment[f"{name}_FILE"] = str(path)
        return environment

    def start(self, name: str) -> None:
        """Start a service, and return when it is healthy."""
        workspace = self.folder / "workspace.yaml"
        server = {"host": ELSEWHERE, "port": self.code_port, "location_name": "modyn_dagster.definitions"}
        workspace.write_text(yaml.safe_dump({"load_from": [{"grpc_server": server}]}))
        options = {
            "mlflow": ["--port", self.mlflow_port],
            "code": ["--host", ELSEWHERE, "--port", self.code_port],
            "webserver": ["--port", self.port, "--workspace", workspace],
            "daemon": ["--workspace", workspace],
        }[name]
        command = ["services", "run", name, *options, "--health-port", self.health_ports[name]]
        with open(self.log(name), "ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-c", "from modyn_dagster.cli import main; main()", *map(str, command)],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_for(f"health of {name}", lambda: self.is_healthy(name) or self._has_ended(name), _START_SECONDS, self.why)
        assert not self._has_ended(name), self.why()

    def is_healthy(self, name: str) -> bool:
        return ask("127.0.0.1", self.health_ports[name])

    def kill(self, name: str) -> None:
        """SIGKILL to a service and all its processes at once, as when its container or machine dies."""
        for process in [self.processes[name], *self.marked(name)]:
            process.kill()
        self.processes.pop(name).wait()

    def stop(self) -> Mapping[str, int]:
        """Send TERM to all services; returns their exit codes."""
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        codes = {name: process.wait(_END_SECONDS) for name, process in self.processes.items()}
        self.processes.clear()
        return codes

    def marked(self, name: str) -> list[psutil.Process]:
        """Processes of a service below its first one, runs included."""
        folder = str(self.deployment.settings.home / "services" / f"{name}@")
        return [process for process in psutil.process_iter() if _mark_of(process).startswith(folder)]

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def why(self, *sensors: str) -> str:
        """Report for a person to read when nothing happens."""
        lines = [f"batches: {self.deployment.states()}"]
        if sensors and self.is_healthy("webserver"):
            lines += [f"{name}: {tick}" for name in sensors for tick in self.graphql.ticks(name)[:3]]
            lines += [f"run {run['id']}: {run['status']}" for run in self.graphql.runs()[:12]]
        return "\n".join([*lines, self._programs()])

    def _has_ended(self, name: str) -> bool:
        return self.processes[name].poll() is not None

    def _programs(self) -> str:
        logs = [self.log(name) for name in SERVICES if self.log(name).exists()]
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-3_000:]}" for log in logs)


def _mark_of(process: psutil.Process) -> str:
    try:
        return str(process.environ().get(MARK, ""))
    except psutil.Error:
        return ""


@contextmanager
def stacked(deployment: Deployment, folder: Path) -> Iterator[Stack]:
    """The services of a deployment, running; nothing of them is left at the end."""
    stack = Stack(deployment, folder)
    try:
        for name in SERVICES:
            stack.start(name)
        yield stack
    finally:
        for name in list(stack.processes):
            stack.kill(name)
