"""Runs that are launched on a cluster, as Dagster's daemon launches them from its queue."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import dagster as dg
import yaml

# What the daemon gives a launcher, and calls; there are no public names for it.
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster._core.remote_origin import RegisteredCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin

from modyn_dagster.build import build_definitions
from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.resources.ray_launcher import RoutingRunLauncher
from modyn_dagster.resources.run_classes import CLASS_TAG
from tests.integration.harness.deployment import Deployment
from tests.integration.harness.waiting import wait_for

#: A job starts in seconds, on a busy machine in many.
SECONDS: Final = 600.0
OVER: Final = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_ORIGIN: Final = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("modyn_dagster.definitions"), "__repository__")


@dataclass
class Launches:
    """Runs of one deployment on one cluster."""

    deployment: Deployment
    instance: dg.DagsterInstance
    batches: tuple[str, str]

    @property
    def launcher(self) -> RoutingRunLauncher:
        launcher = self.instance.run_launcher
        assert isinstance(launcher, RoutingRunLauncher)
        return launcher

    def replay(self, pipeline: str, name: str, tags: Mapping[str, str] | None = None) -> str:
        """Launch a replay; the id of its run."""
        key = dg.AssetKey([pipeline, "replay"])
        defs = build_definitions(settings=self.deployment.settings)
        job = defs.resolve_implicit_global_asset_job_def().get_subset(asset_selection={key})
        ranged = dict(zip(("dagster/asset_partition_range_start", "dagster/asset_partition_range_end"), self.batches))
        code = ModuleCodePointer("modyn_dagster.definitions", "defs", str(self.deployment.project))
        run = self.instance.create_run_for_job(
            job,
            run_config={"ops": {f"{pipeline}__replay": {"config": {"name": name}}}},
            tags={**ranged, CLASS_TAG: "replay", **(tags or {})},
            asset_selection=frozenset([key]),
            status=dg.DagsterRunStatus.NOT_STARTED,
            remote_job_origin=RemoteJobOrigin(_ORIGIN, job.name),
            job_code_origin=JobPythonOrigin(job.name, RepositoryPythonOrigin(sys.executable, code)),
        )
        self.instance.launch_run(run.run_id, workspace=None)  # type: ignore[arg-type]  # a cluster needs none
        return run.run_id

    def status(self, run_id: str) -> dg.DagsterRunStatus:
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        return run.status

    def ended(self, run_id: str) -> dg.DagsterRunStatus:
        """Status of a run once it is over."""
        wait_for("the end of the run", lambda: self.status(run_id) in OVER, SECONDS, lambda: self.story(run_id))
        return self.status(run_id)

    def trains(self, run_id: str, gate: Path) -> None:
        """Wait until a run stands before the gate."""

        def waits() -> bool:
            assert self.status(run_id) not in OVER, self.story(run_id)
            return gate.with_suffix(".waited").exists()

        wait_for("the training", waits, SECONDS, lambda: self.story(run_id))

    def health(self, run_id: str) -> str:
        """Answer to Dagster's monitoring."""
        run = self.instance.get_run_by_id(run_id)
        assert run is not None
        return str(self.launcher.check_run_worker_health(run).status.value)

    def story(self, run_id: str) -> str:
        """Messages of a run."""
        events = [entry.dagster_event for entry in self.instance.all_logs(run_id)]
        engine = [event for event in events if event is not None and event.is_engine_event]
        errors = [str(event.engine_event_data.error) for event in engine if event.engine_event_data.error is not None]
        return "\n".join([*(event.message or event.event_type_value for event in events if event is not None), *errors])

    def job(self, run_id: str) -> Any:
        assert self.launcher.ray is not None
        return self.launcher.ray.job(run_id)


@contextmanager
def launches_of(
    deployment: Deployment, batches: tuple[str, str], ray: Mapping[str, Any], monitoring: int = 1_000
) -> Iterator[Launches]:
    """Dagster's instance of a deployment, with a launcher that sends replays to a cluster."""
    path = deployment.project / "dagster.yaml"
    content = yaml.safe_load(path.read_text())
    content["run_launcher"] = {
        "module": "modyn_dagster.resources.ray_launcher",
        "class": "RoutingRunLauncher",
        "config": {"warm": False, "ray": dict(ray)},
    }
    content["run_monitoring"]["start_timeout_seconds"] = monitoring
    path.write_text(yaml.safe_dump(content))
    ours = {**child_environment(deployment.settings), "DAGSTER_HOME": str(deployment.project)}
    saved = {name: os.environ.get(name) for name in ours}
    os.environ.update(ours)
    try:
        with dg.DagsterInstance.get() as instance:
            yield Launches(deployment, instance, batches)
    finally:
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
