"""``modyn-dagster ui`` and ``up``: the servers of a project, in the terminal."""

import contextlib
import os
from pathlib import Path

import click

from modyn_dagster.cli.check import project_errors, report_errors
from modyn_dagster.cli.project import project_settings
from modyn_dagster.cli.ui.serving import serve
from modyn_dagster.settings import Settings
from modyn_dagster.spec.load import load_project

_port = click.option("--port", type=click.IntRange(1, 65_535), default=3000, show_default=True, help="Dagster's port.")
_mlflow_port = click.option(
    "--mlflow-port", type=click.IntRange(1, 65_535), default=5000, show_default=True, help="MLflow's port."
)


@click.command()
@_port
@_mlflow_port
def ui(port: int, mlflow_port: int) -> None:
    """Start Dagster's webserver and daemon and the MLflow server, and print their addresses.

    They listen on 127.0.0.1 only, on the next free port if theirs is taken. The command starts the embedded Postgres unless a
    server runs, and creates and upgrades the databases. Ctrl-C (or TERM) stops the processes of this command, runs in progress
    included, and no others. When one service ends, the others are stopped and the end of its log is shown. Logs are in
    MODYN_HOME/logs.
    """
    settings = project_settings()
    # An invalid spec is reported here rather than by an empty page.
    load_project(settings.project)
    serve(settings, port, mlflow_port)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), required=False)
@_port
@_mlflow_port
def up(folder: Path | None, port: int, mlflow_port: int) -> None:
    """Start everything that the project in FOLDER needs, as if in that folder; default: the project of the environment.

    Checks the project as `check` does, writes Dagster's settings (dagster.yaml, workspace.yaml) into a project that has none, and
    does what `ui` does: Postgres, its databases and their schema, Dagster's webserver and daemon, MLflow. Ctrl-C (or TERM) stops
    all that it started.
    """
    with contextlib.chdir(folder or "."):
        environment = {**os.environ, "MODYN_PROJECT": "."} if folder is not None else None
        settings = Settings.from_environment(environment)
        report_errors(list(project_errors(settings.project)))
        serve(settings, port, mlflow_port)
