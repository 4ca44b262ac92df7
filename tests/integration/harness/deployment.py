"""A whole installation for tests: project, state and three databases."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from modyn_dagster.catalog import runs
from modyn_dagster.catalog.access.roles import DATABASES
from modyn_dagster.catalog.batches import BatchRow, list_batches
from modyn_dagster.catalog.database.databases import create_databases, upgrade
from modyn_dagster.catalog.database.engine import open_engine
from modyn_dagster.catalog.database.urls import child_environment, database_url
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.settings import Settings
from tests.conftest import RunningServer
from tests.projects.tiny import DATASET, ROOT, Content, write_project

_COMMAND_SECONDS: Final = 600
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
        """Environment of the programs: none of the caller's settings; the project's own code and this tree on the Python path."""
        cleared = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        path = os.pathsep.join([str(self.code), str(ROOT)])
        return cleared | child_environment(self.settings) | {"DAGSTER_HOME": str(self.project), "PYTHONPATH": path}

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


@contextmanager
def deployed(
    server: RunningServer, folder: Path, pipelines: Sequence[Content], *, files: str | None = None, **project: Any
) -> Iterator[Deployment]:
    """A project in ``folder`` with three databases of its own on ``server``, dropped at the end; ``files`` names its store."""
    write_project(folder / "project", pipelines, **project)
    settings = replace(server.settings(folder / "project", folder / "home", f"i{secrets.token_hex(4)}_"), files=files)
    create_databases(settings)
    deployment = Deployment(settings)
    engine = open_engine(settings, "owner")
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
