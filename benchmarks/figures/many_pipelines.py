"""Ticks of many pipelines on one dataset, and the processor that they keep busy; with the default interval of the sensors."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any, Final

import dagster as dg
import psutil
import yaml

from benchmarks.figures.replaying import ROOT, write_project
from benchmarks.measure import Machine, Spread
from benchmarks.report import Figure
from modyn_dagster.assets.samples import announce_batches
from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.cli.dagster_runs import dagster_instance
from modyn_dagster.cli.server import running_database
from modyn_dagster.cli.ui.code_location import CodeLocation
from modyn_dagster.cli.ui.processes import Services
from modyn_dagster.cli.ui.services import daemon
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.settings import Settings
from modyn_dagster.spec.load import load_project

_PIPELINES: Final = 60
#: Ticks of sensors that Dagster's daemon evaluates at the same time by default.
_AT_ONCE: Final = 4
_ROWS: Final = 20
#: Seconds that the daemon runs before it is measured, and is measured: some intervals of the sensors.
_WARM_UP: Final = 45.0
_MEASURED: Final = 70.0
#: Longest wait for the first tick of every sensor.
_TIMEOUT: Final = 240.0


def many_pipelines(work: Path, batches: int, machine: Machine) -> Iterator[Figure]:
    """Seconds of the ticks of sixty pipelines that wait for data, and the share of a core that daemon and code server use."""
    project = work / "pipelines"
    interval = _write(project, batches)
    settings = Settings(project, work / "pipelines-home")
    os.environ["DAGSTER_HOME"] = str(project)
    services = Services(work / "pipelines-logs", project)
    with running_database(settings), closing(Platform.open(settings)) as platform, dagster_instance(settings) as instance:
        [(name, spec)] = platform.project.datasets.items()
        import_history(platform.engine, platform.home, spec, platform.project.root_of(name))
        announce_batches(instance, platform, name)
        environment = {**os.environ, **child_environment(settings), "DAGSTER_HOME": str(project)}
        command = [sys.executable, "-m", "dagster", "sensor", "start", "--start-all", "-w", "workspace.yaml"]
        subprocess.run(command, cwd=project, env=environment, check=True, stdout=subprocess.DEVNULL)
        services.start(daemon(CodeLocation(project, project), environment, 0))
        try:
            _wait_for_ticks(instance)
            time.sleep(_WARM_UP)
            machine.sample()
            used, begin = _processor_seconds(), time.time()
            time.sleep(_MEASURED)
            used, wall = _processor_seconds() - used, time.time() - begin
            machine.sample()
            ticks = _ticks(instance, begin)
        finally:
            services.stop()
    what = f"{_PIPELINES} pipelines, {batches:,} batches"
    share, rounds = used / wall, len(ticks) / wall * interval
    note = f"{len(ticks)} ticks in {wall:.0f} s, load {os.getloadavg()[0]:.1f}"
    yield Figure("P1.tick", f"{what}: a tick", Spread.of(ticks), "s", 1.0, at_most=True, note=note)
    yield Figure("P1.longest", "the longest tick", Spread.of([max(ticks)]), "s")
    yield Figure("P1.processor", "daemon and code server", Spread.of([share]), "cores", 1.0, at_most=True)
    yield Figure("P1.kept", f"ticks of a pipeline every {interval} s", Spread.of([rounds / _PIPELINES]), "")
    yield Figure("P1.ends", "pipelines that fill one core", Spread.of([_PIPELINES / share]), "")
    yield Figure("P1.full", "pipelines whose ticks fill the interval", Spread.of([_AT_ONCE * interval / median(ticks)]), "")


def _wait_for_ticks(instance: dg.DagsterInstance) -> None:
    end = time.monotonic() + _TIMEOUT
    while len(states := _sensors(instance)) < _PIPELINES or not all(_ticks_of(instance, state, 0.0) for state in states):
        if time.monotonic() > end:
            raise RuntimeError(f"{len(states)} of {_PIPELINES} sensors have ticked after {_TIMEOUT:.0f} s")
        time.sleep(1.0)


def _sensors(instance: dg.DagsterInstance) -> list[Any]:
    return [state for state in instance.all_instigator_state() if state.origin.instigator_name.startswith("triggering__")]


def _ticks(instance: dg.DagsterInstance, since: float) -> list[float]:
    """Seconds of every tick of the triggering sensors that began after a moment."""
    return [seconds for state in _sensors(instance) for seconds in _ticks_of(instance, state, since)]


def _ticks_of(instance: dg.DagsterInstance, state: Any, since: float) -> list[float]:
    found = instance.get_ticks(state.instigator_origin_id, state.selector_id, after=since, limit=100)
    return [tick.end_timestamp - tick.timestamp for tick in found if tick.end_timestamp is not None]


def _processor_seconds() -> float:
    """Processor time of the processes that this one has started, and of theirs, without Postgres."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            if process.name() != "postgres":
                used = process.cpu_times()
                total += used.user + used.system
        except psutil.NoSuchProcess:
            continue
    return total


def _write(project: Path, batches: int) -> int:
    """Write the project; returns the seconds between two ticks of a pipeline."""
    write_project(project, batches, _ROWS)
    waiting = project / "pipelines" / "never.yaml"
    content = yaml.safe_load(waiting.read_text(encoding="utf-8"))
    for path in (project / "pipelines").iterdir():
        path.unlink()
    for number in range(_PIPELINES):
        text = yaml.safe_dump(content | {"name": f"pipeline_{number:02d}"}, sort_keys=False)
        (project / "pipelines" / f"pipeline_{number:02d}.yaml").write_text(text, encoding="utf-8")
    for name in ("workspace.yaml", "dagster.yaml"):
        shutil.copy(ROOT / name, project)
    return load_project(project).pipelines["pipeline_00"].sensor_interval
