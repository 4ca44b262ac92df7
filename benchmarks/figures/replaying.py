"""D1 and D8: replays from the command line, their wall time against the work that their cost ledgers count."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from benchmarks.measure import Machine, Spread
from benchmarks.report import Figure
from modyn_dagster.assets.specs import add_partitions, batches_of
from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.catalog.runs import choose_run
from modyn_dagster.catalog.triggers import list_triggers
from modyn_dagster.cli.dagster_runs import dagster_instance
from modyn_dagster.cli.server import running_database
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.reporting.summary import summarise_run
from modyn_dagster.settings import Settings

#: Seconds beyond the ledger that a replay may take: in all, per batch and per trigger.
ALLOWED: Final = (4.0, 0.005, 0.1)
#: Folder of the repository, whose settings of Dagster are used.
ROOT: Final = Path(__file__).resolve().parents[2]
_FEATURES: Final = [f"x{i}" for i in range(8)]


@dataclass(frozen=True, slots=True)
class Replayed:
    """One replay by the command line.

    Attributes:
        wall: seconds of the whole command.
        processor: seconds of both kinds that the command used, without the servers.
        stages: seconds by stage of the ledger.
        batches, triggers: replayed batches, and trained triggers.
        prediction_bytes, predictions: size of the prediction files, and how many predictions they hold.
        peak: largest resident memory of the command, in bytes; of all commands of this process so far.
    """

    wall: float
    processor: float
    stages: Mapping[str, float]
    batches: int
    triggers: int
    prediction_bytes: int
    predictions: int
    peak: int

    @property
    def ledger(self) -> float:
        """Seconds that the ledger counts."""
        return sum(self.stages.values())

    @property
    def allowed(self) -> float:
        """Seconds that the command may take."""
        whole, per_batch, per_trigger = ALLOWED
        return self.ledger + whole + per_batch * self.batches + per_trigger * self.triggers


@contextmanager
def opened_project(project: Path, home: Path) -> Iterator[Settings]:
    """Import the datasets of a project on a server of its own, which is stopped at the end."""
    settings = Settings(project, home)
    os.environ["DAGSTER_HOME"] = str(ROOT)
    with running_database(settings):
        with closing(Platform.open(settings)) as platform, dagster_instance(settings) as instance:
            for name, spec in platform.project.datasets.items():
                summary = import_history(platform.engine, platform.home, spec, platform.project.root_of(name))
                if summary.failed:
                    raise RuntimeError(f"{name} was not imported: {summary.failed[0]}")
                add_partitions(instance, batches_of(name), [batch.partition_key for batch in platform.view(name).batches])
        yield settings


def replayed(settings: Settings, pipeline: str, machine: Machine) -> Replayed:
    """Replay a pipeline over its whole history by the command line."""
    command = [str(Path(sys.executable).with_name("modyn-dagster")), "pipeline", "replay", pipeline]
    environment = os.environ | child_environment(settings)
    machine.sample()
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    machine.sample()
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with closing(Platform.open(settings)) as platform, platform.transaction() as conn:
        run = choose_run(conn, pipeline)
        if run is None:
            raise RuntimeError(f"{pipeline} has no run")
        stages = summarise_run(conn, run).seconds
        triggers = [trigger for trigger in list_triggers(conn, run.id) if trigger.state == "trained"]
        files = [file for trigger in triggers for file in list_predictions(conn, trigger.id)]
        n_bytes = sum((platform.home / file.path).stat().st_size for file in files)
        batches = len(platform.view(run.spec["dataset"]).batches)
        n_predictions = sum(file.n_samples for file in files)
        return Replayed(wall, processor, stages, batches, len(triggers), n_bytes, n_predictions, after.ru_maxrss * 1024)


def figures_of(case: str, what: str, found: Replayed) -> Iterator[Figure]:
    """D1 of one replay: its wall time over what it may take, and what that consists of."""
    stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in sorted(found.stages.items()))
    size = f"{what}: {found.batches} batches, {found.triggers} triggers"
    yield Figure(f"D1.{case}", f"{size}: wall over allowed", _one(found.wall / found.allowed), "x", 1.0, at_most=True)
    yield Figure(f"D1.{case}.wall", "wall of the command", _one(found.wall), "s")
    yield Figure(f"D1.{case}.ledger", "seconds in its ledger", _one(found.ledger), "s", note=stages)
    yield Figure(f"D1.{case}.over", "wall beyond the ledger", _one(found.wall - found.ledger), "s", note="one run")
    yield Figure(f"D1.{case}.processor", "processor seconds of the command", _one(found.processor), "s")


def _one(value: float) -> Spread:
    return Spread.of([value])


def demo(work: Path, machine: Machine) -> Iterator[Figure]:
    """D1 of the pipelines of the demo."""
    subprocess.run([sys.executable, str(ROOT / "examples/baseball/make_data.py")], check=True, stdout=subprocess.DEVNULL)
    with opened_project(ROOT / "examples/baseball", work / "demo-home") as settings:
        for name in ("trained_once", "every_5000_samples", "every_10_seasons"):
            yield from figures_of(name, name, replayed(settings, name, machine))


def made_up(work: Path, batches: int, rows: int, machine: Machine) -> Iterator[Figure]:
    """D1 and D8 of many small batches, with ten triggers and a hundred, the hundred also with the full matrix."""
    project = work / "many-batches"
    write_project(project, batches, rows)
    with opened_project(project, work / "many-home") as settings:
        ten, hundred, full = (replayed(settings, name, machine) for name in ("ten", "hundred", "hundred_full"))
    size = f"{batches} × {rows}"
    yield from figures_of("ten", size, ten)
    yield from figures_of("hundred", size, hundred)
    yield Figure("D8.ledger", "ledger over that of the full matrix", _one(hundred.ledger / full.ledger), "x", 0.15, at_most=True)
    yield Figure("D8.full", "ledger with the full matrix", _one(full.ledger), "s", note=f"wall {full.wall:.1f} s")
    select = hundred.stages.get("select", 0.0) / max(1, hundred.triggers)
    yield Figure("D8.select", "selecting, a trigger", _one(select * 1e3), "ms")
    n_bytes = full.prediction_bytes / max(1, full.predictions)
    yield Figure("D8.bytes", "bytes a prediction of the full matrix", _one(n_bytes), "bytes", 2.0, at_most=True)


def write_project(folder: Path, batches: int, rows: int) -> None:
    """Write a stream of two classes that drift apart slowly, a file per batch, and pipelines with 10, 100 and no triggers."""
    for name in ("datasets", "pipelines", "data"):
        (folder / name).mkdir(parents=True)
    _write_yaml(folder / "datasets" / "many.yaml", _DATASET)
    write_pipeline(folder, pipeline_of("ten", batches * rows // 10, batches))
    write_pipeline(folder, pipeline_of("hundred", batches * rows // 100, batches))
    write_pipeline(folder, pipeline_of("never", 2 * batches * rows, batches))
    full = pipeline_of("hundred_full", batches * rows // 100, batches)
    full["evaluation"]["matrix"] = "full"
    # Other weights: files of equal models are shared, and the second replay would have nothing to predict.
    full["seed"] = 1
    write_pipeline(folder, full)
    rng = np.random.default_rng(15)
    weights = rng.standard_normal(len(_FEATURES))
    begin = np.datetime64("2020-01-01T00:00:00")
    for batch in range(batches):
        values = rng.standard_normal((rows, len(_FEATURES)))
        turned = np.roll(weights, 1) * (batch / batches) + weights * (1 - batch / batches)
        labels = (values @ turned + rng.standard_normal(rows) > 0).astype(int)
        times = begin + np.timedelta64(batch, "D") + (np.arange(rows) * (86_000 // rows)).astype("timedelta64[s]")
        lines = [
            f"{moment},{','.join(f'{value:.5f}' for value in row)},{label}"
            for moment, row, label in zip(times, values.tolist(), labels, strict=True)
        ]
        text = "\n".join([",".join(["time", *_FEATURES, "label"]), *lines, ""])
        (folder / "data" / f"batch_{batch:05d}.csv").write_text(text, encoding="utf-8")


_DATASET: Final[Mapping[str, Any]] = {
    "name": "many",
    "root": "../data",
    "format": {"kind": "csv"},
    "batches": {"kind": "file", "pattern": "batch_*.csv"},
    "time": {"source": "column", "column": "time"},
    "label": {"kind": "class", "n_classes": 2, "from": {"source": "column", "column": "label"}},
}


def pipeline_of(name: str, every: int, days: int) -> dict[str, Any]:
    """Spec of a pipeline of the made-up stream that trains at every n-th sample."""
    return {
        "name": name,
        "dataset": "many",
        "trigger": {"kind": "amount", "every": every},
        "selection": {"window": "since_last_trigger"},
        "training": {
            "features": _FEATURES,
            "model": {"name": "logistic_regression"},
            "optimizer": {"name": "adam", "lr": 0.02},
            "epochs": 1,
            "batch_size": 256,
        },
        "evaluation": {
            "intervals": {"kind": "tumbling", "every": f"{max(1, days // 100)}d", "start": "2020-01-01"},
            "metrics": ["accuracy"],
        },
    }


def write_pipeline(folder: Path, content: Mapping[str, Any]) -> None:
    """Add a pipeline to a project."""
    _write_yaml(folder / "pipelines" / f"{content['name']}.yaml", content)


def _write_yaml(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False), encoding="utf-8")
