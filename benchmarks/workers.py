"""Workers inside a replay: figures W1 and W2.

``python benchmarks/workers.py [--quick] [--json FILE] [--workers N] [--trainings N] [--rounds N] [--batches N]
[--only bare] [--work DIR]``

A made-up stream of rows with an ``amount`` trigger, and 20 trainings from scratch of a network with one thread each. Starts a
Postgres of its own the way the product does, without Dagster, MLflow and bars.

W1         wall of a replay with two workers over that of one process, each a new process from its first import to its end, the
           workers started included; in turn. The hashes of the models are compared.
W1.bare    what two cores give here at the same time: wall of the same number of plain trainings in two bare processes over
           that in one. No replay can fall below it.
W1.*.undisturbed  both without the seconds in which the computing processes were ready to run and had no processor: an estimate
           for a quiet machine, where others use this one.
W1.serial  share of one process's replay that no worker takes: all but the seconds of training in its ledger.
W1.start   seconds until two workers that are started for it have made their first call, with all that a training imports.

W2         wall of the evaluation of one model on a long stream, its predictions divided among two workers, over that of one
           process, in the same way. The checksums of the prediction files are compared.
"""

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    # The repository's root instead of this folder: its modules are found, and hide nobody else's.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.figures.predicting import (
    ROWS,
    Predicted,
    checksums,
    forget_predictions,
    predict_here,
    train_once,
    write_long_stream,
)
from benchmarks.figures.watched import Watched, watched
from benchmarks.figures.working import PIPELINE, Replayed, import_training, replay_here, train_here, write_project
from benchmarks.groups import one_of
from benchmarks.measure import Machine, Spread
from benchmarks.report import Figure, busyness, print_table, write_json
from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.catalog.timings import seconds_by_stage
from modyn_dagster.cli.server import running_database
from modyn_dagster.distributed.processes.pool import ProcessPool
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.settings import Settings

#: Epochs of a training: above 5 s on the machine of docs/benchmarks.md, and of a quick run.
EPOCHS: Final = 90
QUICK_EPOCHS: Final = 3
GOAL: Final = 0.65
_GROUPS: Final = ("bare", "replays", "predictions")
#: Batches of the stream of W2, and of a quick run: enough for several parts.
BATCHES: Final = 100
QUICK_BATCHES: Final = 6
_WHAT: Final = {
    "W1": ("wall of a replay with workers / of one process", "x"),
    "W1.undisturbed": ("the same without waits for a processor", "x"),
    "W1.bare": ("plain trainings: two bare processes / one", "x"),
    "W1.bare.undisturbed": ("the same without waits for a processor", "x"),
    "W1.serial": ("share of one process's replay that is not training", ""),
    "W1.start": ("workers started, their imports included", "s"),
    "W1.training": ("mean training of one process", "s"),
    "W1.one": ("wall of one process", "s"),
    "W1.one.waited": ("of it waiting for a processor", "s"),
    "W1.many": ("wall with workers", "s"),
    "W1.many.waited": ("of it waiting for a processor", "s"),
}
_PREDICTIONS: Final = {
    "W2": ("wall of an evaluation of one model with workers / of one process", "x"),
    "W2.undisturbed": ("the same without waits for a processor", "x"),
    "W2.one": ("wall of one process", "s"),
    "W2.many": ("wall with workers", "s"),
}


def _watched(*programs: Sequence[object], environment: dict[str, str]) -> Watched:
    """Run programs of this file at the same time."""
    file = str(Path(__file__).resolve())
    times = watched([[sys.executable, file, *map(str, arguments)] for arguments in programs], environment)
    print(f"{' and '.join(' '.join(map(str, arguments)) for arguments in programs)}: {times}", flush=True)
    return times


def _replayed(settings: Settings, name: str, workers: int, trainings: int, platform: Platform) -> Replayed:
    environment = os.environ | child_environment(settings) | {"MODYN_WORKERS": str(workers) if workers else ""}
    times = _watched(["--replay", name, "--trainings", trainings], environment=environment)
    with platform.transaction() as conn:
        run = next(run for run in list_runs(conn, PIPELINE) if run.name == name)
        stages = dict(seconds_by_stage(conn, run.id))
        return Replayed(times, stages, [model.hash for model in list_models(conn, run.id)])


def started(workers: int) -> float:
    """Seconds until so many new workers have made their first call."""
    begun = time.perf_counter()
    with ProcessPool(workers) as pool:
        list(pool.map(import_training, range(workers)))
        return time.perf_counter() - begun


def _predicted(settings: Settings, workers: int, platform: Platform) -> Predicted:
    forget_predictions(platform)
    environment = os.environ | child_environment(settings) | {"MODYN_WORKERS": str(workers) if workers else ""}
    return Predicted(_watched(["--predict"], environment=environment), checksums(platform))


def measure_predictions(work: Path, options: argparse.Namespace) -> Iterator[Figure]:
    """W2."""
    machine, batches = Machine(), options.batches or (QUICK_BATCHES if options.quick else BATCHES)
    write_long_stream(work / "project", batches)
    settings = Settings(work / "project", work / "home")
    values: dict[str, list[float]] = defaultdict(list)
    with running_database(settings), closing(Platform.open(settings)) as platform:
        import_history(platform.engine, platform.home, platform.project.datasets["long"], platform.project.root_of("long"))
        train_once(platform)
        for _ in range(options.rounds):
            machine.sample()
            one = _predicted(settings, 0, platform)
            machine.sample()
            many = _predicted(settings, options.workers, platform)
            machine.sample()
            if not one.checksums or one.checksums != many.checksums:
                raise RuntimeError("workers made other prediction files than one process")
            values["W2"].append(many.times.wall / one.times.wall)
            values["W2.undisturbed"].append(many.times.undisturbed / one.times.undisturbed)
            values["W2.one"].append(one.times.wall)
            values["W2.many"].append(many.times.wall)
    for name, (what, unit) in _PREDICTIONS.items():
        yield Figure(name, what, Spread.of(values[name]), unit, None, note=f"{batches * ROWS:,} rows")
    yield from busyness(machine)


def measure(work: Path, options: argparse.Namespace) -> Iterator[Figure]:
    """W1 and what stands beside it."""
    machine, epochs = Machine(), QUICK_EPOCHS if options.quick else EPOCHS
    write_project(work / "project", options.trainings, epochs)
    settings = Settings(work / "project", work / "home")
    values: dict[str, list[float]] = defaultdict(list)
    hashes = set[tuple[str, ...]]()
    with running_database(settings), closing(Platform.open(settings)) as platform:
        spec = platform.project.datasets["rows"]
        import_history(platform.engine, platform.home, spec, platform.project.root_of("rows"))
        for number in range(options.rounds):
            machine.sample()
            if "bare" in options.only:
                half = options.trainings // 2
                halves = [["--bare", n, "--epochs", epochs] for n in (half, options.trainings - half)]
                alone = _watched(["--bare", options.trainings, "--epochs", epochs], environment=dict(os.environ))
                beside = _watched(*halves, environment=dict(os.environ))
                values["W1.bare"].append(beside.wall / alone.wall)
                values["W1.bare.undisturbed"].append(beside.undisturbed / alone.undisturbed)
                machine.sample()
            if "replays" not in options.only:
                continue
            one = _replayed(settings, f"one {number}", 0, options.trainings, platform)
            machine.sample()
            many = _replayed(settings, f"many {number}", options.workers, options.trainings, platform)
            machine.sample()
            hashes |= {tuple(one.hashes), tuple(many.hashes)}
            values["W1"].append(many.times.wall / one.times.wall)
            values["W1.undisturbed"].append(many.times.undisturbed / one.times.undisturbed)
            values["W1.serial"].append(1 - one.stages["train"] / one.times.wall)
            values["W1.start"].append(started(options.workers))
            values["W1.one"].append(one.times.wall)
            values["W1.one.waited"].append(one.times.waited)
            values["W1.many"].append(many.times.wall)
            values["W1.many.waited"].append(many.times.waited)
            values["W1.training"].append(one.stages["train"] / len(one.hashes))
    if len(hashes) > 1:
        raise RuntimeError("the replays ended with other models")
    for name, (what, unit) in _WHAT.items():
        if values[name]:
            goal = GOAL if name in ("W1", "W1.undisturbed") else None
            yield Figure(name, what, Spread.of(values[name]), unit, goal, at_most=True, note=f"{options.trainings} trainings")
    yield from busyness(machine)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Workers inside a replay; figures W1 and W2.")
    parser.add_argument("--quick", action="store_true", help="trainings of a fraction of a second, which show nothing")
    parser.add_argument("--json", type=Path, help="file that maps each id to value, unit, min, max and goal")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--trainings", type=int, default=20)
    parser.add_argument("--batches", type=int, help=f"batches of {ROWS:,} rows that one model predicts")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", type=one_of(_GROUPS), default=_GROUPS, help="bare programs, replays, predictions, or several")
    parser.add_argument("--work", type=Path, help="existing folder for data; emptied again (default: a temporary folder)")
    parser.add_argument("--replay", help=argparse.SUPPRESS)
    parser.add_argument("--predict", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--bare", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=argparse.SUPPRESS)
    options: Any = parser.parse_args()
    if options.replay is not None:
        replay_here(options.replay, options.trainings)
        return
    if options.predict:
        predict_here()
        return
    if options.bare is not None:
        train_here(options.bare, options.epochs)
        return
    with tempfile.TemporaryDirectory(prefix="modyn-workers-", dir=options.work) as work:
        # A server that root starts runs under another account, which has to come this far.
        Path(work).chmod(0o711)
        found: list[Figure] = []
        if {"bare", "replays"} & set(options.only):
            found += measure(Path(work, "replays"), options)
        if "predictions" in options.only:
            found += measure_predictions(Path(work, "predictions"), options)
    print_table(found, "Workers")
    if options.json is not None:
        write_json(options.json, found)


if __name__ == "__main__":
    main()
