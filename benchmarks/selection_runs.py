"""Replay pipelines that differ in their selection; every result is a line of a file, so that an interrupted run can resume."""

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.database import Database
from benchmarks.selection_policies import FULL, POLICIES, SelectionPolicy
from benchmarks.selection_streams import Stream
from modyn_dagster.catalog.runs import choose_run
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.replay.run import ReplayRequest
from modyn_dagster.pipeline.replay.walk import replay
from modyn_dagster.reporting.summary import summarise_run
from modyn_dagster.settings import Settings

#: The first trigger's model starts from nothing and is not compared.
SKIPPED: Final = 1


@dataclass(frozen=True, slots=True)
class Wanted:
    """One pipeline and seed."""

    policy: str
    ratio: float
    seed: int

    @property
    def pipeline(self) -> str:
        """Its name in the project."""
        return f"{re.sub(r'[^a-z0-9]+', '_', self.policy.lower())}_{round(1000 * self.ratio)}"


@dataclass(frozen=True, slots=True)
class Result:
    """What one pipeline did.

    Attributes:
        stream: it ran over.
        policy: name of what it trains on.
        ratio: of the data.
        seed: of the run.
        metric: of the series.
        series: per trigger, what its model scored on the samples of its time that no model is trained on.
        samples: in the training sets, over all triggers.
        training: seconds of training and selection, over all triggers.
        seconds: of the whole replay.
    """

    stream: str
    policy: str
    ratio: float
    seed: int
    metric: str
    series: list[float | None]
    samples: int
    training: float
    seconds: float

    @property
    def wanted(self) -> Wanted:
        """What it is the result of."""
        return Wanted(self.policy, self.ratio, self.seed)

    @property
    def score(self) -> float:
        """Mean over the triggers that count, those without a value left out."""
        values = [value for value in self.series[SKIPPED:] if value is not None]
        return sum(values) / len(values)


def plan(policies: Sequence[str], ratios: Sequence[float], seeds: Sequence[int]) -> list[Wanted]:
    """Everything, the largest ratio and all of its seeds first; full data once per seed."""
    found = [Wanted(FULL.name, 1.0, seed) for seed in seeds]
    return found + [Wanted(name, ratio, seed) for ratio in ratios for seed in seeds for name in policies]


def read_results(path: Path) -> list[Result]:
    """What is there already; none if there is no file."""
    if not path.exists():
        return []
    return [Result(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def run_all(server: Database, work: Path, stream: Stream, wanted: Sequence[Wanted], results: Path) -> Iterator[Result]:
    """Replay what is wanted one after the other, and append each result to the file."""
    folder = work / stream.name
    stream.write(folder / "data")
    _write_project(folder, stream, wanted)
    platform = Platform.open(Settings(folder, server.home / stream.name, postgres_url=server.url))
    try:
        dataset = platform.project.datasets[stream.name]
        import_history(platform.engine, platform.home, dataset, platform.project.root_of(stream.name))
        keys = [batch.partition_key for batch in platform.view(stream.name).batches]
        for one in wanted:
            found = _replayed(platform, stream, one, keys)
            results.parent.mkdir(parents=True, exist_ok=True)
            with results.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(asdict(found)) + "\n")
            yield found
    finally:
        platform.engine.dispose()


def _replayed(platform: Platform, stream: Stream, one: Wanted, keys: Sequence[str]) -> Result:
    start = time.perf_counter()
    name = f"{stream.name}__{one.pipeline}"
    for _ in replay(platform, ReplayRequest(name, keys, "benchmark", name=f"seed{one.seed}", seed=one.seed)):
        pass
    seconds = time.perf_counter() - start
    with platform.transaction() as conn:
        run = choose_run(conn, name)
        if run is None:
            raise LookupError(f"{name} left no run")
        summary = summarise_run(conn, run)
    spent = sum(value for stage, value in summary.seconds.items() if stage != "evaluate")
    # The last model also stands for what came after it.
    series = list({score.trigger: score.value for score in reversed(summary.trained)}.values())[::-1]
    return Result(
        stream.name, one.policy, one.ratio, one.seed, summary.metric, series, summary.samples_trained_on, spent, seconds
    )


def _write_project(folder: Path, stream: Stream, wanted: Sequence[Wanted]) -> None:
    for name in ("datasets", "pipelines"):
        (folder / name).mkdir()
    _write(folder / "datasets" / f"{stream.name}.yaml", stream.dataset(folder / "data"))
    for one in wanted:
        name = f"{stream.name}__{one.pipeline}"
        _write(folder / "pipelines" / f"{name}.yaml", pipeline(name, stream, POLICIES[one.policy], one.ratio))


def pipeline(name: str, stream: Stream, policy: SelectionPolicy, ratio: float) -> dict[str, Any]:
    """The pipeline's file: finetuned at every trigger on what came since the last one, as in the paper."""
    return {
        "name": name,
        "dataset": stream.name,
        "trigger": {"kind": "time", "every": stream.every, "start": stream.start},
        "selection": policy.selection(ratio),
        "training": {**stream.training, "use_previous_model": True, **policy.training(ratio)},
        "evaluation": {
            "intervals": {"kind": "tumbling", "every": stream.every, "start": stream.start},
            "metrics": list(stream.metrics),
            "min_samples": 50,
            "matrix": "trained",
        },
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
