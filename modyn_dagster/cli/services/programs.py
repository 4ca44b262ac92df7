"""Programs of ``modyn-dagster services run``: those of ``ui``, each by itself, and the code location as a gRPC server."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from modyn_dagster.cli.ui import services as programs
from modyn_dagster.cli.ui.code_location import CodeLocation
from modyn_dagster.cli.ui.processes import Service
from modyn_dagster.errors import ConfigError
from modyn_dagster.private_files import make_home

#: Name under which Dagster's code servers answer questions about their health.
_GRPC_SERVICE: Final = "DagsterApi"
_ASK_SECONDS: Final = 5.0
#: The kernel takes no longer path of a socket (``sun_path``, with its last byte for the end).
_SOCKET_PATH_BYTES: Final = 107


def webserver(location: CodeLocation, environment: Mapping[str, str], host: str, port: int) -> Service:
    """Dagster's webserver behind the guard."""
    return replace(programs.webserver(location, environment, port, host), name="webserver")


def mlflow(environment: Mapping[str, str], artifacts: Path, host: str, port: int) -> Service:
    """The MLflow server behind the guard."""
    return programs.mlflow(environment, port, environment["MODYN_MLFLOW_URI"], artifacts, host)


def daemon(location: CodeLocation, environment: Mapping[str, str]) -> Service:
    """Dagster's daemon; it is healthy while all its parts beat, as they write it into Dagster's database."""
    service = programs.daemon(location, environment, 0)
    return replace(service, name="daemon", answers=_heartbeats(service.environment, time.time()))


def code(location: CodeLocation, environment: Mapping[str, str], address: str) -> Service:
    """The code location as a gRPC server at ``unix:<path>`` or ``<host>:<port>``.

    It answers to everybody who reaches it: a socket is closed to other accounts, a port is not. Raises ``ConfigError`` for a
    path that is too long for a socket.
    """
    if address.startswith("unix:"):
        path = Path(address.removeprefix("unix:"))
        if len(os.fsencode(path)) > _SOCKET_PATH_BYTES:
            rule = f"a socket's path has at most {_SOCKET_PATH_BYTES} bytes; name a shorter one, or a port"
            raise ConfigError("modyn-dagster services run code", "--socket", str(path), rule)
        make_home(path.parent)
        place = ["--socket", str(path)]
    else:
        host, _, port = address.rpartition(":")
        place = ["--host", _in_brackets(host), "--port", port]
    # -P: modules of the current folder do not take the place of libraries.
    command = [sys.executable, "-P", "-m", "dagster", "api", "grpc", "-m", "modyn_dagster.definitions", *place]
    return Service("code", command, {**environment, "DAGSTER_HOME": str(location.dagster_home)}, answers=lambda: _serves(address))


def _serves(address: str) -> bool:
    """Ask a code server for its health."""
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(_target(address)) as channel:
        question = health_pb2.HealthCheckRequest(service=_GRPC_SERVICE)
        answer = health_pb2_grpc.HealthStub(channel).Check(question, timeout=_ASK_SECONDS)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def _target(address: str) -> str:
    """Address at which this machine reaches a code server."""
    if address.startswith("unix:"):
        return address
    host, _, port = address.rpartition(":")
    return f"{_in_brackets(programs.reachable(host))}:{port}"


def _in_brackets(host: str) -> str:
    """Host as gRPC has it before a port: addresses of IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def _heartbeats(environment: Mapping[str, str], since: float) -> Callable[[], bool]:
    """Tell whether every part of the daemon that must run has beaten since a time, and not stopped."""

    def beat() -> bool:
        import dagster as dg

        # Dagster reads its settings from the environment of the process and nowhere else.
        os.environ.update(environment)
        with dg.DagsterInstance.get() as instance:
            statuses = instance.get_daemon_statuses().values()
            return all(
                status.healthy and status.last_heartbeat is not None and status.last_heartbeat.timestamp >= since
                for status in statuses
                if status.required
            )

    return beat
