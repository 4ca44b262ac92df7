"""D4: import of many small batches from an empty database, with their events in Dagster."""

import os
import resource
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from benchmarks.figures.replaying import ROOT, write_project
from benchmarks.measure import Machine, Spread
from benchmarks.report import Figure
from modyn_dagster.assets.samples import announce_batches
from modyn_dagster.cli.dagster_runs import dagster_instance
from modyn_dagster.cli.server import running_database
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.settings import Settings


def imported(work: Path, batches: int, rows: int, machine: Machine) -> Iterator[Figure]:
    """D4 of one import: wall time a batch, its two parts, and the processor time without the servers'."""
    project = work / "imported"
    write_project(project, batches, rows)
    settings = Settings(project, work / "imported-home")
    os.environ["DAGSTER_HOME"] = str(ROOT)
    with (
        running_database(settings),
        closing(Platform.open(settings)) as platform,
        dagster_instance(settings) as instance,
    ):
        [(name, spec)] = platform.project.datasets.items()
        machine.sample()
        used, start = _processor_seconds(), time.perf_counter()
        import_history(platform.engine, platform.home, spec, platform.project.root_of(name))
        without_events = time.perf_counter() - start
        shown = announce_batches(instance, platform, name)
        wall, used = time.perf_counter() - start, _processor_seconds() - used
        machine.sample()
    if shown != batches:
        raise RuntimeError(f"{shown} of {batches} batches are shown")
    size = f"{batches} × {rows}"
    yield Figure("D4", f"{size}: import with events, a batch", _a_batch(wall, batches), "ms", 15.0, at_most=True, note="one run")
    yield Figure("D4.without_events", "without events", _a_batch(without_events, batches), "ms")
    yield Figure("D4.events", "events alone", _a_batch(wall - without_events, batches), "ms")
    yield Figure("D4.processor", "processor time, a batch", _a_batch(used, batches), "ms", note="without the servers")


def _a_batch(seconds: float, batches: int) -> Spread:
    return Spread.of([seconds / batches * 1e3])


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
