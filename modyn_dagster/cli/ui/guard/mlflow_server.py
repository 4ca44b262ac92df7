"""MLflow's server behind the guard: the application that ``mlflow server --app-name modyn-dagster`` finds by its entry point."""

import os
from importlib.metadata import entry_points
from typing import Final

from modyn_dagster.cli.ui.guard.judgement import MLFLOW
from modyn_dagster.cli.ui.guard.middleware import Guard
from modyn_dagster.cli.ui.guard.rules import Rules
from modyn_dagster.errors import ConfigError

_GROUP: Final = "mlflow.app"
#: Name of the entry point in this group (setup.py).
APP_NAME: Final = "modyn-dagster"


def create_app() -> Guard:
    """MLflow's application behind the guard; uvicorn calls this once in each of its processes."""
    from mlflow.server.fastapi_app import app

    return Guard(app, Rules.from_environment(os.environ), MLFLOW)


def guarded_options(rules: Rules) -> list[str]:
    """Options of ``mlflow server`` that put it behind the guard and make its own checks agree with the rules.

    Its defaults accept any name that begins with ``192.168.``. Raises ``ConfigError`` when the entry point is not installed.
    """
    if not entry_points(group=_GROUP, name=APP_NAME):
        rule = "is not installed, so MLflow finds no guard; install modyn-dagster again (`make set-up` or `pip install`)"
        raise ConfigError("installation", f"entry point {_GROUP}", APP_NAME, rule)
    # It compares with the port, by patterns in which a bracket begins a set.
    names = [name for host in sorted(rules.hosts) for name in (host, f"{host.replace('[', '[[]')}:*")]
    own = [f"{scheme}://{name}" for scheme in ("http", "https") for name in names]
    allowed = ["--allowed-hosts", ",".join(names), "--cors-allowed-origins", ",".join([*own, *sorted(rules.origins)])]
    return ["--app-name", APP_NAME, *allowed]
