"""One installation, copied for every point at which a process is killed: database, files and Dagster's own storage."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from dagster import AssetKey, DagsterInstance

from modyn_dagster.catalog.database.urls import database_url
from modyn_dagster.catalog.runs import Mode
from modyn_dagster.settings import Settings
from tests.conftest import RunningServer
from tests.integration.harness.deployment import Deployment
from tests.integration.harness.fork_server import ForkServer, Job, Result
from tests.integration.harness.kill_points import Point
from tests.integration.harness.outcome import Ending, ending_of

#: Dagster's events are a display: for speed they go to SQLite here, one folder per copy.
_INSTANCE: Final = "telemetry: {enabled: false}\n"


@dataclass(frozen=True)
class World:
    """An installation without servers, worked on by children of a fork server.

    With a ``table`` commits are counted, and children killed, only where they wrote rows of it.
    """

    deployment: Deployment
    server: RunningServer
    forks: ForkServer
    table: str = ""

    @property
    def settings(self) -> Settings:
        return self.deployment.settings

    @property
    def database(self) -> str:
        return str(database_url(self.settings, "modyn").database)

    @property
    def instance_folder(self) -> Path:
        return self.settings.home.parent / "instance"

    def prepare(self) -> None:
        """An empty Dagster instance, and the folder of state."""
        self.settings.home.mkdir(exist_ok=True)
        self.instance_folder.mkdir()
        (self.instance_folder / "dagster.yaml").write_text(_INSTANCE)

    @contextmanager
    def copied(self, name: str) -> Iterator["World"]:
        """The same installation, elsewhere; gone at the end."""
        prefix = f"{self.settings.database_prefix}{name}_"
        folder = self.settings.home.parent / name
        settings = replace(self.settings, home=folder / "home", database_prefix=prefix)
        copy = World(Deployment(settings), self.server, self.forks, self.table)
        self.deployment.close()
        self.server.create_database(copy.database, template=self.database)
        shutil.copytree(self.settings.home, settings.home)
        shutil.copytree(self.instance_folder, copy.instance_folder)
        try:
            yield copy
        finally:
            copy.deployment.close()
            self.server.drop_database(copy.database)
            shutil.rmtree(folder)

    def import_history(self, point: Point | None = None) -> Result:
        """Ingest what lies in the dataset's folder."""
        return self.forks.run(self._job(point))

    def replay(self, pipeline: str, point: Point | None = None, *, victim: int | None = None, until: str = "") -> Result:
        """Replay a pipeline from the first batch to ``until``, or the last."""
        batches = list(self.deployment.states())
        job = self._job(point)
        return self.forks.run(replace(job, pipeline=pipeline, batches=(batches[0], until or batches[-1]), victim=victim))

    def produce(self, pipeline: str, point: Point | None = None) -> Result:
        """Tick the sensor of a pipeline and launch what it asks for, until it asks for nothing."""
        return self.forks.run(replace(self._job(point), pipeline=pipeline, live=True))

    def delete(self, request: int, point: Point | None = None) -> Result:
        """Execute a deletion request."""
        return self.forks.run(replace(self._job(point), deletion=request))

    def ending(self, pipeline: str, mode: Mode = "replay") -> Ending:
        """Outcome of the newest run of a pipeline."""
        return ending_of(self.deployment.platform, self.deployment.run(pipeline, mode))

    def materialized(self, *assets: Sequence[str]) -> list[set[str]]:
        """Partitions of each asset that Dagster's event log has as materialized."""
        with DagsterInstance.from_config(str(self.instance_folder)) as instance:
            return [instance.get_materialized_partitions(AssetKey(list(asset))) for asset in assets]

    def _job(self, point: Point | None) -> Job:
        environment = self.deployment.environment | {"DAGSTER_HOME": str(self.instance_folder), "MODYN_MLFLOW_URI": ""}
        report = self.instance_folder / "report.json"
        return Job(environment, self.database, str(report), point=asdict(point) if point else None, table=self.table)
