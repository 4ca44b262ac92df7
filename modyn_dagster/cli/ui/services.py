"""Programs of ``modyn-dagster ui`` and ``services run``: Dagster's webserver and daemon, and the MLflow server."""

import http.client
import json
import os
import socket
import sys
import sysconfig
import time
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, Final

from modyn_dagster.cli.ui.code_location import CodeLocation
from modyn_dagster.cli.ui.guard.mlflow_server import guarded_options
from modyn_dagster.cli.ui.guard.rules import Rules
from modyn_dagster.cli.ui.processes import Service
from modyn_dagster.errors import ConfigError

HOST: Final = "127.0.0.1"
_GUARDED_DAGSTER: Final = "modyn_dagster.cli.ui.guard.dagster_server"
_PORTS_TRIED: Final = 50
_TIMEOUT_SECONDS: Final = 5.0
_DAEMONS: Final = "{ instance { daemonHealth { allDaemonStatuses { required healthy lastHeartbeatTime } } } }"

#: MLflow would start ten job workers of 240 MB each; the other variables switch telemetry off.
_MLFLOW_ENVIRONMENT: Final = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
}


def webserver(location: CodeLocation, environment: Mapping[str, str], port: int, host: str = HOST) -> Service:
    """Dagster's webserver behind the guard: pages and GraphQL. ``ConfigError`` if a setting of the guard is malformed."""
    headers = guard_rules(environment, host).passing_headers
    return Service(
        "dagster-webserver",
        # -P: modules of the current folder do not take the place of libraries.
        [sys.executable, "-P", "-m", _GUARDED_DAGSTER, "-h", host, "-p", str(port), *location.arguments],
        {**environment, "DAGSTER_HOME": str(location.dagster_home)},
        answers=lambda: _get(port, "/server_info", headers, host=reachable(host)) is not None,
    )


def daemon(location: CodeLocation, environment: Mapping[str, str], webserver_port: int) -> Service:
    """Dagster's daemon: run queue, sensors, backfills. It answers once the webserver sees a heartbeat of each part."""
    started = time.time()
    headers = guard_rules(environment).passing_headers
    return Service(
        "dagster-daemon",
        [_program("dagster-daemon"), "run", *location.arguments],
        {**environment, "DAGSTER_HOME": str(location.dagster_home)},
        answers=lambda: _daemons_beat(webserver_port, headers, started),
    )


def mlflow(environment: Mapping[str, str], port: int, database_url: str, artifacts: Path, host: str = HOST) -> Service:
    """The MLflow server behind the guard. The database URL holds a password; unlike a command line, `ps` shows no environment."""
    rules = guard_rules(environment, host)
    # The guard in MLflow's process is not told where it listens.
    hosts = {"MODYN_UI_ALLOWED_HOSTS": ",".join(sorted(rules.hosts))}
    arguments = ["--host", host, "--port", str(port), "--workers", "1", "--artifacts-destination", str(artifacts)]
    return Service(
        "mlflow",
        [_program("mlflow"), "server", *arguments, *guarded_options(rules)],
        {**environment, **_MLFLOW_ENVIRONMENT, **hosts, "MLFLOW_BACKEND_STORE_URI": database_url},
        answers=lambda: _get(port, "/health", rules.passing_headers, host=reachable(host)) is not None,
    )


def free_port(first: int, avoid: Container[int] = ()) -> int:
    """Find the first free port from ``first`` on, except ports to ``avoid``.

    Raises ``ConfigError`` when 50 in a row are taken.
    """
    for port in (port for port in range(first, min(first + _PORTS_TRIED, 65_536)) if port not in avoid):
        with socket.socket() as probe:
            # As the servers do: a port whose last connection was just closed counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise ConfigError("modyn-dagster ui", "port", first, f"and the {_PORTS_TRIED - 1} ports after it are taken or forbidden")


def guard_rules(environment: Mapping[str, str], host: str = HOST) -> Rules:
    """Rules that a service on ``host`` finds in its environment."""
    return Rules.from_environment({**os.environ, **environment}, host)


def reachable(host: str) -> str:
    """Address at which this machine reaches a server that listens on ``host``, which may mean all addresses."""
    return {"": HOST, "0.0.0.0": HOST, "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound


def _program(name: str) -> Path:
    return Path(sysconfig.get_path("scripts")) / name


def _daemons_beat(port: int, headers: Mapping[str, str], since: float) -> bool:
    answer = _get(port, "/graphql", headers, json.dumps({"query": _DAEMONS}))
    if answer is None:
        return False
    statuses = json.loads(answer)["data"]["instance"]["daemonHealth"]["allDaemonStatuses"]
    return all(_beats(status, since) for status in statuses if status["required"])


def _beats(status: Mapping[str, Any], since: float) -> bool:
    # An earlier daemon's last heartbeat counts as healthy for minutes.
    return bool(status["healthy"]) and status["lastHeartbeatTime"] >= since


def _get(port: int, path: str, headers: Mapping[str, str], body: str | None = None, host: str = HOST) -> bytes | None:
    """Request a page, by POST of JSON if there is a ``body``; returns the content of a 200 answer, else None."""
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET" if body is None else "POST", path, body, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        return response.read() if response.status == http.HTTPStatus.OK else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
