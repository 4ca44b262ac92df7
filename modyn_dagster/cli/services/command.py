"""``modyn-dagster services``: one server in the foreground, and a question for its health."""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from modyn_dagster.catalog.database.urls import service_environment
from modyn_dagster.cli.console import say
from modyn_dagster.cli.project import project_settings
from modyn_dagster.cli.services import programs
from modyn_dagster.cli.services.foreground import FOLDER, Watch, require_password, run_in_foreground
from modyn_dagster.cli.services.health import ask
from modyn_dagster.cli.ui.code_location import CodeLocation
from modyn_dagster.cli.ui.guard.rules import LOCAL
from modyn_dagster.imports import require
from modyn_dagster.settings import Settings

#: Port of each service's health server, unless an option names another one.
HEALTH_PORTS: Final = {"webserver": 3001, "daemon": 3002, "code": 3003, "mlflow": 3004}

_PORT: Final = click.IntRange(1, 65_535)
_workspace = click.option(
    "--workspace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File that names the code location; default: as for `ui`.",
)


def _watched(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Options for the health server of a service and for its end, as one argument ``watch``."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @click.option("--health-host", default="127.0.0.1", show_default=True, help="Address of the health server.")
        @click.option(
            "--health-port",
            type=click.IntRange(0, 65_535),
            default=HEALTH_PORTS[name],
            show_default=True,
            help="Port of the health server; 0: none.",
        )
        @click.option(
            "--grace", type=click.FloatRange(0), default=30.0, show_default=True, help="Seconds to end in; then it is killed."
        )
        @wraps(command)
        def with_watch(health_host: str, health_port: int, grace: float, **options: Any) -> None:
            command(watch=Watch(health_host, health_port, grace), **options)

        return with_watch

    return decorate


def _listening(port: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Options for the address of a server of pages."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        at_port = click.option("--port", type=_PORT, default=port, show_default=True, help="Port to listen on.")
        at_host = click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
        return at_host(at_port(command))

    return decorate


@click.group()
def services() -> None:
    """Run the servers of a project one by one, each in the foreground of a process, container or machine.

    `ui` runs all of them on one machine; here each is started, watched and restarted by systemd, Docker or Kubernetes. They need
    Postgres with the current schema (`db upgrade`), usually that of MODYN_POSTGRES_URL or MODYN_POSTGRES_URL_FILE. docs/deploy.md
    shows whole installations.
    """


@services.group()
def run() -> None:
    """Run one server in the foreground; TERM or Ctrl-C ends it with all its processes, with exit code 0.

    It writes its log to standard output and standard error. GET /health on the health port answers 200, or 503 while the server
    does not answer.
    """


@run.command()
@_listening(3000)
@_workspace
@_watched("webserver")
def webserver(host: str, port: int, workspace: Path | None, watch: Watch) -> None:
    """Run Dagster's webserver behind the guard; beyond this machine it asks for a password (MODYN_UI_TOKEN)."""
    settings, location, environment = _surroundings("dagster_webserver", workspace)
    require_password(environment, host)
    service = programs.webserver(location, environment, host, port)
    run_in_foreground(settings, location, service, watch, f"http://{host}:{port}")


@run.command()
@_workspace
@_watched("daemon")
def daemon(workspace: Path | None, watch: Watch) -> None:
    """Run Dagster's daemon: run queue, sensors, backfills, monitoring of runs. One per installation."""
    settings, location, environment = _surroundings("dagster", workspace)
    run_in_foreground(settings, location, programs.daemon(location, environment), watch, "no pages")


@run.command()
@click.option("--socket", type=click.Path(path_type=Path), help="Unix socket; default: MODYN_HOME/services/code.sock.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on, with --port.")
@click.option("--port", type=_PORT, help="Port to listen on instead of a socket.")
@_watched("code")
def code(socket: Path | None, host: str, port: int | None, watch: Watch) -> None:
    """Run the code location as a gRPC server, for the `grpc_server` of a workspace.yaml; runs are its processes.

    gRPC here knows no password: whoever reaches the server can start the project's runs. A socket is closed to other accounts.
    """
    if socket is not None and port is not None:
        raise click.UsageError("--socket and --port exclude each other")
    settings, location, environment = _surroundings("dagster")
    path = (socket or settings.home / FOLDER / "code.sock").resolve()
    address = f"unix:{path}" if port is None else f"{host}:{port}"
    if port is not None and host not in LOCAL:
        say(f"warning: whoever reaches {address} can start runs; keep it within a private network", err=True)
    run_in_foreground(settings, location, programs.code(location, environment, address), watch, address)


@run.command()
@_listening(5000)
@_watched("mlflow")
def mlflow(host: str, port: int, watch: Watch) -> None:
    """Run the MLflow server behind the guard; beyond this machine it asks for a password (MODYN_UI_TOKEN)."""
    settings, location, environment = _surroundings("mlflow")
    require_password(environment, host)
    service = programs.mlflow(environment, settings.home / "mlflow", host, port)
    run_in_foreground(settings, location, service, watch, f"http://{host}:{port}")


@services.command()
@click.argument("name", type=click.Choice(sorted(HEALTH_PORTS)))
@click.option("--health-host", default="127.0.0.1", show_default=True, help="Address of its health server.")
@click.option("--health-port", type=_PORT, help="Port of its health server; default: that of the service.")
def health(name: str, health_host: str, health_port: int | None) -> None:
    """Ask a service that runs for its health: exit code 0, or 1 while it does not answer as it should."""
    healthy = ask(health_host, health_port or HEALTH_PORTS[name])
    click.echo("healthy" if healthy else "unhealthy")
    click.get_current_context().exit(0 if healthy else 1)


def _surroundings(package: str, workspace: Path | None = None) -> tuple[Settings, CodeLocation, dict[str, str]]:
    require(package, "this service")
    settings = project_settings()
    location = CodeLocation.find(settings.project, os.environ.get("DAGSTER_HOME"))
    chosen = location if workspace is None else replace(location, workspace=workspace.resolve())
    return settings, chosen, service_environment(settings)
