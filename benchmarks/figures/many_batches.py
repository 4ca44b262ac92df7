"""D2 and D3: memory and cost a batch at many batches against a tenth of them, with a hundred triggers and intervals at both."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.figures.replaying import ROOT, replayed, write_project
from benchmarks.measure import Machine, Spread
from benchmarks.report import Figure
from modyn_dagster.assets.samples import announce_batches
from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.cli.dagster_runs import dagster_instance
from modyn_dagster.cli.server import running_database
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.pipeline.decide.tick import Attempt, tick
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.settings import Settings

#: Rows of a batch: few, so that what a batch costs is not what its rows cost.
_ROWS: Final = 20
#: Share of the batches at the smaller size.
_TENTH: Final = 10
_TICKS: Final = 5


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds for everything at one size, and the peak memory of the replay in bytes."""

    seconds: Mapping[str, float]
    ledger: float
    peak: int


def scaled(work: Path, batches: int, machine: Machine) -> Iterator[Figure]:
    """D2 and D3 at two numbers of batches."""
    sizes = batches // _TENTH, batches
    few, many = (_costs(work / f"scale-{size}", size, machine) for size in sizes)
    against = f"{sizes[1]:,} batches against {sizes[0]:,}"
    yield Figure("D2", f"{against}: peak memory of a replay", Spread.of([many.peak / few.peak]), "x", 1.1, at_most=True)
    yield Figure("D2.few", "peak memory with fewer", Spread.of([few.peak / 1e6]), "MB")
    for name, seconds in many.seconds.items():
        ratio = (seconds / sizes[1]) / (few.seconds[name] / sizes[0])
        note = f"{few.seconds[name]:.2f} and {seconds:.2f} s in all; one run"
        yield Figure(f"D3.{name}", f"{against}: {name}, cost a batch", Spread.of([ratio]), "x", 1.2, at_most=True, note=note)
        further = (seconds - few.seconds[name]) / (sizes[1] - sizes[0])
        yield Figure(f"D3.{name}.further", "each further batch", Spread.of([further * 1e3]), "ms")
    yield Figure(
        "D3.ledger", "ledger of the replay with more", Spread.of([many.ledger]), "s", note=f"{few.ledger:.1f} s with fewer"
    )


def _costs(work: Path, batches: int, machine: Machine) -> Costs:
    project = work / "project"
    write_project(project, batches, _ROWS)
    settings = Settings(project, work / "home")
    os.environ["DAGSTER_HOME"] = str(ROOT)
    with running_database(settings):
        seconds = {"import": _import(settings)}
        hundred = replayed(settings, "hundred", machine)
        seconds["replay"] = hundred.wall
        seconds["status"] = _status(settings)
        seconds["tick"] = _tick(settings)
    return Costs(seconds, hundred.ledger, hundred.peak)


def _import(settings: Settings) -> float:
    with closing(Platform.open(settings)) as platform, dagster_instance(settings) as instance:
        [(name, spec)] = platform.project.datasets.items()
        start = time.perf_counter()
        import_history(platform.engine, platform.home, spec, platform.project.root_of(name))
        announce_batches(instance, platform, name)
        return time.perf_counter() - start


def _status(settings: Settings) -> float:
    command = [str(Path(sys.executable).with_name("modyn-dagster")), "pipeline", "status", "hundred"]
    environment = os.environ | child_environment(settings)
    start = time.perf_counter()
    subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def _tick(settings: Settings) -> float:
    """Seconds of a tick with nothing new, once the live run has seen all batches."""
    with closing(Platform.open(settings)) as platform:
        tick(platform, "never", lambda *_: Attempt.GOING)
        seconds = []
        for _ in range(_TICKS):
            start = time.perf_counter()
            tick(platform, "never", lambda *_: Attempt.GOING)
            seconds.append(time.perf_counter() - start)
        return median(seconds)
