"""Nodes of a Ray cluster as processes of this machine, with a token; nothing of them is left in the end.

They are on 127.0.0.1, or on hosts made of namespaces (``hosts``).

Each node is a `ray start --block`, which is ended by a signal to it: `ray stop` would end the nodes of everybody.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from tests.cluster.hosts import Host
from tests.integration.harness.waiting import wait_for

#: In the environment of all processes of a cluster and of a node, those of its jobs and workers included. They need not be
#: children of `ray start`.
_MARK: Final = "MODYN_TESTS_CLUSTER"
NODE_MARK: Final = "MODYN_TESTS_NODE"
#: One for all clusters of this process: Ray reads it once, when it is first imported (``tests.suites``).
TOKEN: Final = os.environ["RAY_AUTH_TOKEN"]
_STORE_BYTES: Final = 80 * 2**20
_UP_SECONDS: Final = 600.0
#: For nodes alone: a process that asks with another token would try for as long.
_PATIENCE: Final = dict.fromkeys(
    ("RAY_raylet_start_wait_time_s", "RAY_gcs_server_port_wait_time_s", "RAY_DASHBOARD_STARTUP_TIMEOUT_S"), str(int(_UP_SECONDS))
)
_END_SECONDS: Final = 30.0


@dataclass
class Node:
    """One `ray start`."""

    process: "subprocess.Popen[bytes]"
    log: Path
    mark: str

    @property
    def is_up(self) -> bool:
        return self.process.poll() is None

    def die(self) -> None:
        """Kill everything of the node, as if its machine had lost its power."""
        while found := self.processes():
            for process in found:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.wait()

    def end(self) -> None:
        if self.is_up:
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_SECONDS)

    def processes(self) -> list[psutil.Process]:
        """Living processes of the node: Ray's own, and those of jobs and workers."""
        return marked(NODE_MARK, self.mark)


def ray_start(role: str) -> Sequence[str]:
    """Ray's own program."""
    program = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start"]
    return [*program, "--head"] if role == "head" else program


@dataclass
class Nodes:
    """A cluster: a head, and nodes that join it.

    Attributes:
        folder: Ray's files.
        environment: of the nodes, and so of all that runs on them.
        host: address of the head.
        token: secret of the cluster.
        command: program of a node, by its role: head or worker.
    """

    folder: Path
    environment: Mapping[str, str]
    host: str = "127.0.0.1"
    token: str = TOKEN
    command: Callable[[str], Sequence[str]] = ray_start
    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    ports: dict[str, int] = field(default_factory=dict)
    started: list[Node] = field(default_factory=list)

    @property
    def dashboard(self) -> str:
        return f"http://127.0.0.1:{self.ports['dashboard']}"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.ports['gcs']}"

    @property
    def access(self) -> dict[str, str]:
        """Environment of a process that may use the cluster."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token, "RAY_USAGE_STATS_ENABLED": "0"}

    def start_head(self, cpus: int) -> Node:
        """Start the head, again on the same ports where there was one, and wait until its dashboard answers."""
        if not self.ports:
            self.ports |= {"gcs": free_port(), "dashboard": free_port()}
        ports = [f"--port={self.ports['gcs']}", f"--dashboard-port={self.ports['dashboard']}", "--dashboard-host=127.0.0.1"]
        ports.append(f"--ray-client-server-port={free_port()}")
        ports.append(f"--node-ip-address={self.host}")
        node = self._start("head", *ports, f"--num-cpus={cpus}", f"--temp-dir={self.folder}", "--include-dashboard=true")
        wait_for("the dashboard", lambda: self._answers(node, set()), _UP_SECONDS, node.log.read_text)
        return node

    def start_node(self, cpus: int, environment: Mapping[str, str] | None = None, host: Host | None = None) -> Node:
        """Start another node, here or on a host with files of Ray of its own, and wait until the head counts it."""
        if host is not None:
            host.own(self.folder)
        # Not their number: the head still counts a node that has just died, and stops doing so at any time.
        known = self.living()
        place = f"--node-ip-address={self.host if host is None else host.address}"
        arguments = [f"--address={self.address}", f"--num-cpus={cpus}", place]
        node = self._start("worker", *arguments, environment=environment, host=host)
        wait_for("the node", lambda: self._answers(node, known), _UP_SECONDS, node.log.read_text)
        return node

    def living(self) -> set[str]:
        """Nodes that the head takes for alive, by their ids."""
        return set(self.addresses())

    def addresses(self) -> dict[str, str]:
        """Addresses of the nodes that the head takes for alive, by their ids."""
        from ray.util.state import list_nodes

        found = list_nodes(self.dashboard, filters=[("state", "=", "ALIVE")], raise_on_missing_output=False)
        return {node.node_id: node.node_ip for node in found}

    def left_over(self) -> list[psutil.Process]:
        """Living processes of the cluster, of its jobs and of its workers."""
        return marked(_MARK, self.mark)

    def end(self) -> list[str]:
        """End all nodes and remove their files; returns the processes that had to be killed."""
        for node in reversed(self.started):
            node.end()
        deadline = time.monotonic() + _END_SECONDS
        while (left := self.left_over()) and time.monotonic() < deadline:
            time.sleep(0.2)
        names = []
        for process in left:
            with suppress(psutil.NoSuchProcess):
                names.append(" ".join(process.cmdline())[:120])
                process.kill()
        shutil.rmtree(self.folder)
        return names

    def _start(self, role: str, *arguments: str, environment: Mapping[str, str] | None = None, host: Host | None = None) -> Node:
        log = self.folder / f"node_{len(self.started)}.log"
        mark = f"{self.mark}-{len(self.started)}"
        env = {**self.environment, **self.access, **_PATIENCE, **(environment or {}), _MARK: self.mark, NODE_MARK: mark}
        # Several nodes on one machine: each has ports of its own.
        own = [f"--dashboard-agent-listen-port={free_port()}", f"--metrics-export-port={free_port()}"]
        fixed = ["--block", "--disable-usage-stats", f"--object-store-memory={_STORE_BYTES}"]
        command = [*self.command(role), *fixed, *own, *arguments]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command if host is None else host.command(*command),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        node = Node(process, log, mark)
        self.started.append(node)
        return node

    def _answers(self, node: Node, known: set[str]) -> bool:
        assert node.is_up, node.log.read_text()
        try:
            return not self.living() <= known
        except Exception:  # noqa: BLE001 - of whatever is not there yet
            return False


@contextmanager
def nodes_of(
    environment: Mapping[str, str], command: Callable[[str], Sequence[str]] = ray_start, host: str = "127.0.0.1"
) -> Iterator[Nodes]:
    """A cluster without nodes yet. In the end all its processes and files are gone, or the test fails."""
    # Short: names of sockets have at most 107 characters.
    nodes = Nodes(Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp")), environment, host, command=command)
    saved = {name: os.environ.get(name) for name in nodes.access}
    os.environ.update(nodes.access)
    try:
        yield nodes
    finally:
        nodes.end()
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    assert nodes.left_over() == []
    assert not nodes.folder.exists()


def marked(variable: str, value: str) -> list[psutil.Process]:
    """Living processes with a variable in their environment, and their children: a process that sets its title loses it."""
    found: set[psutil.Process] = set()
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.environ().get(variable) == value:
                found |= {process, *process.children(recursive=True)}
    return [process for process in found if is_alive(process)]


def is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
