"""A whole installation for tests: project, state, three databases, and Dagster's programs when they are wanted."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from modyn_dagster.catalog import runs
from modyn_dagster.catalog.batches import BatchRow, list_batches
from modyn_dagster.catalog.databases import create_databases
from modyn_dagster.catalog.datasets import ensure_dataset
from modyn_dagster.catalog.engine import open_engine
from modyn_dagster.catalog.migrate import upgrade
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from modyn_dagster.catalog.urls import DATABASES, child_environment, database_url
from modyn_dagster.cli.processes import Services
from modyn_dagster.cli.services import HOST, CodeLocation, daemon, free_port, webserver
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.settings import Settings
from tests.conftest import RunningServer
from tests.integration.harness.graphql import GraphQL
from tests.integration.harness.waiting import wait_for
from tests.projects.tiny import DATASET, Content, write_project

_START_SECONDS: Final = 180.0
_COMMAND_SECONDS: Final = 240
_BACKFILL_SECONDS: Final = 300
_UNDER_WAY: Final = ("REQUESTED", "CANCELING", "FAILING")
_FIRST_PORT: Final = 33_000
_OURS: Final = ("MODYN_", "DAGSTER_", "MLFLOW_")


@dataclass(frozen=True)
class Deployment:
    """A project folder with ``dagster.yaml`` and the settings of its databases."""

    settings: Settings

    @property
    def project(self) -> Path:
        return self.settings.project

    @property
    def code(self) -> Path:
        """The project's own code."""
        return self.project / "code"

    @property
    def environment(self) -> dict[str, str]:
        """Of the programs: nothing of the caller's settings, and the project's own code on the Python path."""
        cleared = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        ours = child_environment(self.settings) | {"DAGSTER_HOME": str(self.project), "PYTHONPATH": str(self.code)}
        return cleared | ours

    @cached_property
    def platform(self) -> Platform:
        """The project as a caller of the package sees it."""
        return Platform.open(self.settings)

    def close(self) -> None:
        """Close the platform's connections, if it was ever asked for."""
        if "platform" in self.__dict__:
            self.platform.close()

    def batches(self) -> list[BatchRow]:
        with self.platform.transaction() as conn:
            dataset = ensure_dataset(conn, self.platform.project.datasets[DATASET])
            return list_batches(conn, dataset.id)

    def states(self) -> dict[str, str]:
        """State of every batch by partition key, in ordinal order."""
        return {batch.partition_key: batch.state for batch in self.batches()}

    def run(self, pipeline: str, mode: runs.Mode) -> runs.RunRow | None:
        """The newest run of a pipeline in a mode."""
        with self.platform.transaction() as conn:
            found = [run for run in runs.list_runs(conn, pipeline) if run.mode == mode]
        return found[-1] if found else None

    def triggers(self, pipeline: str, mode: runs.Mode) -> list[TriggerRow]:
        """Triggers of that run."""
        run = self.run(pipeline, mode)
        if run is None:
            return []
        with self.platform.transaction() as conn:
            return list_triggers(conn, run.id)

    def command(
        self, *arguments: str, check: bool = True, environment: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """``modyn-dagster`` with these arguments, as a user runs it in the project's folder."""
        command = [sys.executable, "-c", "from modyn_dagster.cli import main; main()", *arguments]
        env = self.environment if environment is None else environment
        result = subprocess.run(
            command, cwd=self.project, env=env, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
        )
        assert not check or result.returncode == 0, f"{arguments}: {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result


class Servers:
    """Dagster's webserver and daemon over a deployment, in process groups of their own; ``stop`` leaves nothing behind."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.logs = deployment.settings.home / "logs"
        self._services = Services(self.logs, deployment.project)
        self.port = free_port(_FIRST_PORT + os.getpid() % 1_000)
        self.graphql = GraphQL(f"http://{HOST}:{self.port}")

    def start(self) -> None:
        location = CodeLocation(self.deployment.project, self.deployment.project)
        environment: Mapping[str, str] = self.deployment.environment
        services = (webserver(location, environment, self.port), daemon(location, environment, self.port))
        for service in services:
            self._services.start(service)
        self._services.wait_until_answering(services, _START_SECONDS)

    def stop(self) -> None:
        self._services.stop()

    def backfill_status(self, backfill_id: str) -> str:
        """Of a backfill, once it is over."""

        def ended() -> str | None:
            status = str(self.graphql.backfill(backfill_id)["status"])
            return None if status in _UNDER_WAY else status

        return wait_for(f"the end of backfill {backfill_id}", ended, _BACKFILL_SECONDS, self.why)

    def why(self, *sensors: str) -> str:
        """What a person would look at when nothing happens: batches, runs, sensor ticks, ends of logs."""
        lines: list[str] = [f"batches: {self.deployment.states()}"]
        with self.deployment.platform.transaction() as conn:
            for run in runs.list_runs(conn):
                triggers = [(row.partition_key, row.state, row.attempt, row.error) for row in list_triggers(conn, run.id)]
                lines.append(f"{run.title}: {run.state}, cursor {run.cursor}, last batch {run.last_ordinal}, {triggers}")
        lines += [f"{name}: {tick}" for name in sensors for tick in self.graphql.ticks(name)[:3]]
        for launched in self.graphql.runs()[:12]:
            lines.append(
                f"run {launched['id']}: {launched['status']} {[key['path'] for key in launched['assetSelection'] or []]}"
            )
            if launched["status"] == "FAILURE":
                lines += [f"  {message[:2_000]}" for message in self.graphql.messages(launched["id"])[-8:]]
        return "\n".join([*lines, *self._tails()])

    def _tails(self) -> Sequence[str]:
        return [f"--- {log.name}\n" + log.read_text(errors="replace")[-3_000:] for log in sorted(self.logs.glob("*.log"))]


@contextmanager
def deployed(server: RunningServer, folder: Path, pipelines: Sequence[Content], **project: Any) -> Iterator[Deployment]:
    """A project in ``folder`` with three databases of its own on ``server``, dropped at the end."""
    url = server.url.render_as_string(hide_password=False)
    write_project(folder / "project", pipelines, **project)
    settings = Settings(folder / "project", folder / "home", postgres_url=url, database_prefix=f"i{secrets.token_hex(4)}_")
    create_databases(settings)
    deployment = Deployment(settings)
    engine = open_engine(settings)
    upgrade(engine)
    engine.dispose()
    # Specs that name the project's own code are refused where it cannot be found.
    sys.path.insert(0, str(deployment.code))
    try:
        yield deployment
    finally:
        sys.path.remove(str(deployment.code))
        deployment.close()
        for name in DATABASES:
            server.drop_database(str(database_url(settings, name).database))


@contextmanager
def served(deployment: Deployment) -> Iterator[Servers]:
    """The deployment with webserver and daemon running."""
    servers = Servers(deployment)
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()
