"""``modyn-dagster ui``: Dagster's webserver and daemon and the MLflow server, for as long as the command runs."""

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import click
import sqlalchemy as sa

from modyn_dagster.catalog.engine import open_engine, transaction
from modyn_dagster.catalog.tables import batch
from modyn_dagster.catalog.urls import child_environment
from modyn_dagster.cli.processes import Service, Services, stop_leftovers
from modyn_dagster.cli.project import project_settings
from modyn_dagster.cli.server import running_database
from modyn_dagster.cli.services import HOST, CodeLocation, daemon, free_port, mlflow, webserver
from modyn_dagster.cli.signals import interrupted_by_signals
from modyn_dagster.cli.single import Announce, only_one
from modyn_dagster.settings import Settings
from modyn_dagster.spec.load import load_project

_START_SECONDS: Final = 120.0


@click.command()
@click.option("--port", type=click.IntRange(1, 65_535), default=3000, show_default=True, help="Dagster's port.")
@click.option("--mlflow-port", type=click.IntRange(1, 65_535), default=5000, show_default=True, help="MLflow's port.")
def ui(port: int, mlflow_port: int) -> None:
    """Start Dagster's webserver and daemon and the MLflow server, and print their addresses.

    They listen on 127.0.0.1 only; a taken port gives way to the next free one. Starts the embedded Postgres unless a
    server runs, and creates and upgrades the databases. Ctrl-C (or TERM) stops what this command started, runs under
    way included, and nothing else. When one of them ends, the others are stopped and the end of its log is shown. Logs
    lie in MODYN_HOME/logs.
    """
    settings = project_settings()
    # A spec with a mistake is better said here than by an empty page.
    load_project(settings.project)
    location = CodeLocation.find(settings.project, os.environ.get("DAGSTER_HOME"))
    with interrupted_by_signals(), suppress(KeyboardInterrupt), only_one(settings.home) as announce:
        _run(settings, location, announce, port, mlflow_port)
    click.echo("stopped")


def _run(settings: Settings, location: CodeLocation, announce: Announce, port: int, mlflow_port: int) -> None:
    logs = settings.home / "logs"
    if leftovers := stop_leftovers(logs):
        click.echo(f"ended {leftovers} processes that a killed `modyn-dagster ui` had left behind")
    click.echo("starting Postgres, Dagster and MLflow ...")
    with running_database(settings):
        services = Services(logs, location.folder)
        try:
            first = free_port(port)
            urls = _start(settings, location, services, first, free_port(mlflow_port, avoid=[first]))
            announce(urls)
            for name, url in urls.items():
                click.echo(f"{name:<8} {url}")
            if not _has_batches(settings):
                click.echo("No batch was ingested yet: see `modyn-dagster dataset import --help`, or run `make demo` first.")
            click.echo("MLflow begins with its pages for chats: choose `Model training` at the top left, once per browser.")
            click.echo("Ctrl-C stops them.")
            services.watch()
        finally:
            click.echo("stopping ...")
            services.stop()


def _has_batches(settings: Settings) -> bool:
    engine = open_engine(settings)
    try:
        with transaction(engine) as conn:
            return conn.scalar(sa.select(batch.c.id).limit(1)) is not None
    finally:
        engine.dispose()


def _start(settings: Settings, location: CodeLocation, services: Services, port: int, mlflow_port: int) -> dict[str, str]:
    """Start all three; returns their URLs by name once they answer."""
    pages = {"Dagster": f"http://{HOST}:{port}", "MLflow": f"http://{HOST}:{mlflow_port}"}
    links = {"MODYN_DAGSTER_UI_URL": pages["Dagster"], "MODYN_MLFLOW_UI_URL": pages["MLflow"]}
    environment = child_environment(settings) | links
    artifacts = settings.home / "mlflow"
    started: Sequence[Service] = (
        webserver(location, environment, port),
        daemon(location, environment, port),
        mlflow(environment, mlflow_port, environment["MODYN_MLFLOW_URI"], artifacts),
    )
    for service in started:
        services.start(service)
    services.wait_until_answering(started, _START_SECONDS)
    return pages
