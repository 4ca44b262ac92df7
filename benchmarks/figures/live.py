"""D7: live triggers through the daemon, from the tick that sees a file to the committed model, and a backlog."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import dagster as dg
import yaml

from benchmarks.figures.replaying import ROOT, write_project
from benchmarks.measure import Machine, Spread
from benchmarks.report import Figure
from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.catalog.runs import live_run
from modyn_dagster.catalog.timings import seconds_by_stage
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from modyn_dagster.cli.dagster_runs import dagster_instance
from modyn_dagster.cli.server import running_database
from modyn_dagster.cli.ui.code_location import CodeLocation
from modyn_dagster.cli.ui.processes import Services
from modyn_dagster.cli.ui.services import daemon
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.settings import Settings

#: Seconds between two ticks of a sensor.
_INTERVAL: Final = 5
_ROWS: Final = 500
#: Single files that are measured, after one that warms up; and triggers of the backlog.
_FILES: Final = 3
_WAITING: Final = 20
_GOALS: Final[Mapping[str, float]] = {"cold": 12.0, "warm": 4.0}
_BACKLOG_GOAL: Final = 40.0
#: Epochs of a training of the backlog: about half a second.
_EPOCHS: Final = 60
_TIMEOUT: Final = 420.0


@dataclass(frozen=True, slots=True)
class Caught:
    """One file on its way to a model, in seconds.

    Attributes:
        ingesting: from the tick that registers the file to the end of its ingestion.
        waiting: from there to the tick that decides.
        training: from that tick to the committed model.
        ledger: of that, and counted by the ledger: selection and training.
    """

    ingesting: float
    waiting: float
    training: float
    ledger: float

    @property
    def over(self) -> float:
        """Seconds without the wait for a tick and the work."""
        return self.ingesting + self.training - self.ledger


class Live:
    """A project with a daemon over it, and files that somebody delivers."""

    def __init__(self, settings: Settings, instance: dg.DagsterInstance, platform: Platform) -> None:
        self.settings, self.instance, self.platform = settings, instance, platform
        self.delivered = 0

    def deliver(self, count: int = 1) -> None:
        """Move files from the store into the folder that is watched; they were written an hour ago."""
        for _ in range(count):
            name = f"batch_{self.delivered:05d}.csv"
            source, target = self.settings.project / "store" / name, self.settings.project / "data" / name
            os.utime(source, (time.time() - 3_600,) * 2)
            source.rename(target)
            self.delivered += 1

    def switch(self, verb: str, sensor: str) -> None:
        """Start or stop a sensor by Dagster's command line."""
        command = [sys.executable, "-m", "dagster", "sensor", verb, sensor, "-w", "workspace.yaml"]
        subprocess.run(command, cwd=self.settings.project, env=_environment(self.settings), check=True, stdout=subprocess.DEVNULL)

    def trained(self, pipeline: str) -> list[TriggerRow]:
        with self.platform.transaction() as conn:
            run = live_run(conn, pipeline)
            return [] if run is None else list_triggers(conn, run.id, ["trained"])

    def ledger(self, trigger: TriggerRow) -> Mapping[str, float]:
        with self.platform.transaction() as conn:
            return seconds_by_stage(conn, trigger.run_id, trigger.id)

    def wait_for(self, pipeline: str, count: int) -> list[TriggerRow]:
        """Trained triggers of a pipeline, once there are so many."""
        end = time.monotonic() + _TIMEOUT
        while len(found := self.trained(pipeline)) < count:
            if time.monotonic() > end:
                raise RuntimeError(f"{pipeline}: {len(found)} of {count} triggers are trained after {_TIMEOUT:.0f} s")
            time.sleep(0.2)
        return found

    def tick_of(self, run_id: str) -> float:
        """Begin of the tick that requested a run."""
        for state in self.instance.all_instigator_state():
            for tick in self.instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=200):
                if run_id in tick.run_ids:
                    return float(tick.timestamp)
        raise RuntimeError(f"no tick requested run {run_id}")

    def caught(self, trigger: TriggerRow) -> Caught:
        """Times of the file that a trigger was decided by, which is the newest one."""
        key = f"batch_{self.delivered - 1:05d}"
        [ingestion] = self.instance.get_run_records(dg.RunsFilter(tags={"modyn/batch": key}))
        if ingestion.end_time is None or trigger.finished_at is None:
            raise RuntimeError(f"{key} is not ingested, or its trigger not trained")
        seen, decided = self.tick_of(ingestion.dagster_run.run_id), self.tick_of(str(trigger.dagster_run_id))
        ingested, stages = min(ingestion.end_time, decided), self.ledger(trigger)
        ledger = stages.get("select", 0.0) + stages.get("train", 0.0)
        return Caught(ingested - seen, decided - ingested, trigger.finished_at.timestamp() - decided, ledger)


def live(work: Path, machine: Machine) -> Iterator[Figure]:
    """D7: single files, cold and warm, and a backlog, warm."""
    for start in ("warm", "cold"):
        with running(work / start, warm=start == "warm") as place:
            yield from _files(place, start, machine)
            if start == "warm":
                yield from _backlog(place, machine)


def _files(place: Live, start: str, machine: Machine) -> Iterator[Figure]:
    found = []
    for count in range(1, _FILES + 2):
        machine.sample()
        place.deliver()
        trigger = place.wait_for("single", count)[-1]
        until_idle(place.instance)
        found.append(place.caught(trigger))
    measured, load = found[1:], f"load {os.getloadavg()[0]:.1f}"

    def spread(value: Callable[[Caught], float]) -> Spread:
        return Spread.of([value(each) for each in measured])

    what = f"{start}: tick that sees a file to its model, less ledger"
    yield Figure(f"D7.{start}", what, spread(lambda each: each.over), "s", _GOALS[start], at_most=True, note=load)
    yield Figure(f"D7.{start}.ingest", "tick to the end of the ingestion", spread(lambda each: each.ingesting), "s")
    yield Figure(f"D7.{start}.train", "tick to the committed model", spread(lambda each: each.training), "s")
    yield Figure(f"D7.{start}.ledger", "selection and training in the ledger", spread(lambda each: each.ledger), "s")
    yield Figure(f"D7.{start}.ticks", "waits for the deciding tick", spread(lambda each: each.waiting), "s")


def _backlog(place: Live, machine: Machine) -> Iterator[Figure]:
    place.switch("stop", "triggering__single")
    place.deliver(_WAITING - place.delivered)
    end = time.monotonic() + _TIMEOUT
    while len(place.platform.view("many").batches) < _WAITING and time.monotonic() < end:
        time.sleep(0.5)
    until_idle(place.instance)
    machine.sample()
    place.switch("start", "triggering__waiting")
    triggers = place.wait_for("waiting", _WAITING)
    runs = list(dict.fromkeys(str(trigger.dagster_run_id) for trigger in triggers))
    begin = place.tick_of(runs[0])
    ends = {str(trigger.dagster_run_id): trigger.finished_at.timestamp() for trigger in triggers if trigger.finished_at}
    waits = sum(max(0.0, place.tick_of(after) - ends[before]) for before, after in pairwise(runs))
    ledger = [sum(place.ledger(trigger).get(stage, 0.0) for stage in ("select", "train")) for trigger in triggers]
    wall = ends[runs[-1]] - begin - waits
    note = f"{len(runs)} runs, load {os.getloadavg()[0]:.1f}"
    what = f"warm: {_WAITING} waiting triggers, first tick to last model"
    yield Figure("D7.backlog", what, Spread.of([wall]), "s", _BACKLOG_GOAL, at_most=True, note=note)
    yield Figure("D7.backlog.ledger", "a trigger in the ledger", Spread.of(ledger), "s")
    yield Figure("D7.backlog.ticks", "waits for ticks between its runs", Spread.of([waits]), "s")


def until_idle(instance: dg.DagsterInstance) -> None:
    """Wait until no run is under way."""
    over = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
    going = dg.RunsFilter(statuses=[status for status in dg.DagsterRunStatus if status not in over])
    end = time.monotonic() + _TIMEOUT
    while instance.get_runs(going, limit=1) and time.monotonic() < end:
        time.sleep(0.2)


@contextmanager
def running(folder: Path, *, warm: bool) -> Iterator[Live]:
    """A project of its own with database and daemon, its sensors for single files on."""
    project = folder / "project"
    _write(project, warm=warm)
    settings = Settings(project, folder / "home")
    os.environ["DAGSTER_HOME"] = str(project)
    services = Services(folder / "logs", project)
    with running_database(settings), closing(Platform.open(settings)) as platform, dagster_instance(settings) as instance:
        place = Live(settings, instance, platform)
        for sensor in ("new_data__many", "triggering__single"):
            place.switch("start", sensor)
        services.start(daemon(CodeLocation(project, project), _environment(settings), 0))
        try:
            yield place
        finally:
            services.stop()


def _environment(settings: Settings) -> dict[str, str]:
    return {**os.environ, **child_environment(settings), "DAGSTER_HOME": str(settings.project)}


def _write(project: Path, *, warm: bool) -> None:
    write_project(project, _WAITING, _ROWS)
    (project / "data").rename(project / "store")
    (project / "data").mkdir()
    for path in (project / "pipelines").iterdir():
        path.unlink()
    _change(project / "datasets" / "many.yaml", sensor_interval=_INTERVAL)
    content = _pipeline()
    _dump(project / "pipelines" / "single.yaml", content | {"name": "single"})
    training = content["training"] | {"epochs": _EPOCHS}
    _dump(project / "pipelines" / "waiting.yaml", content | {"name": "waiting", "training": training})
    shutil.copy(ROOT / "workspace.yaml", project)
    shutil.copy(ROOT / "dagster.yaml", project)
    launcher = yaml.safe_load((project / "dagster.yaml").read_text(encoding="utf-8"))["run_launcher"]
    launcher["config"]["warm"] = warm
    _change(project / "dagster.yaml", run_launcher=launcher)


def _pipeline() -> dict[str, Any]:
    """A pipeline that trains at every file."""
    return {
        "dataset": "many",
        "trigger": {"kind": "amount", "every": _ROWS},
        "training": {
            "model": {"name": "logistic_regression"},
            "optimizer": {"name": "adam", "lr": 0.02},
            "epochs": 2,
            "batch_size": 32,
        },
        "evaluation": {"intervals": {"kind": "tumbling", "every": "5d", "start": "2020-01-01"}, "metrics": ["accuracy"]},
        "sensor_interval": _INTERVAL,
    }


def _change(path: Path, **fields: Any) -> None:
    _dump(path, yaml.safe_load(path.read_text(encoding="utf-8")) | fields)


def _dump(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False), encoding="utf-8")
