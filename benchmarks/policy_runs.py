"""Replays of every policy over a stream by the platform itself, on a Postgres of the benchmark."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from benchmarks.database import Database
from benchmarks.policy_streams import LabelledStream, write_batches
from benchmarks.policy_table import Blocks
from modyn_dagster.catalog.runs import choose_run
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.replay.run import ReplayRequest
from modyn_dagster.pipeline.replay.walk import replay
from modyn_dagster.reporting.comparison import compare_runs
from modyn_dagster.reporting.summary import RunSummary, summarise_run
from modyn_dagster.settings import Settings
from modyn_dagster.spec.base import seconds_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one policy.

    Attributes:
        policy: its name in the table.
        triggers: models it trained.
        triggers_after: those since every policy had one; earlier ones are not compared (as in the paper, §7.2).
        score: mean accuracy of the currently active model, over the intervals that all policies are judged on.
        samples: trained on, over all models.
        seconds: wall seconds by stage, measuring included.
        trained_until: last sample time of each model's training set.
        series: ``(interval start, accuracy)`` of the active model.
    """

    policy: str
    triggers: int
    triggers_after: int
    score: float | None
    samples: int
    seconds: dict[str, float]
    trained_until: tuple[datetime, ...]
    series: tuple[tuple[datetime, float], ...]


def replay_policies(server: Database, work: Path, stream: LabelledStream, blocks: Blocks) -> Iterator[str | list[Outcome]]:
    """Replay one policy after the other; yields a line of progress after each, then the outcomes."""
    names = {policy: f"{stream.name}__{_pipeline_name(policy)}" for policy in blocks}
    folder = work / stream.name
    write_batches(stream, folder / "data", seconds_of(stream.units.batch))
    _write_project(folder, stream, {names[policy]: block for policy, block in blocks.items()})
    settings = Settings(folder, server.home, postgres_url=server.url)
    platform = Platform.open(settings)
    try:
        dataset = platform.project.datasets[stream.name]
        import_history(platform.engine, platform.home, dataset, platform.project.root_of(stream.name))
        keys = [batch.partition_key for batch in platform.view(stream.name).batches]
        summaries = []
        for policy, name in names.items():
            for _ in replay(platform, ReplayRequest(name, keys, "benchmark")):
                pass
            summaries.append(_summary(platform, name))
            yield f"{stream.name}: {policy}: {summaries[-1].triggers.trained} triggers, {summaries[-1].total_seconds:.1f} s"
        yield _outcomes(list(names), summaries)
    finally:
        platform.engine.dispose()


def _outcomes(policies: Sequence[str], summaries: Sequence[RunSummary]) -> list[Outcome]:
    comparison = compare_runs(summaries)
    begin = comparison.shared[0][0] if comparison.shared else None
    shared = set(comparison.shared)
    return [
        Outcome(
            policy,
            summary.triggers.trained,
            0 if begin is None else sum(model.train_end >= begin for model in summary.models),
            compared.score,
            summary.samples_trained_on,
            dict(summary.seconds),
            tuple(model.train_end for model in summary.models),
            tuple((one.start, one.value) for one in summary.active if one.value is not None and one.interval in shared),
        )
        for policy, summary, compared in zip(policies, summaries, comparison.runs, strict=True)
    ]


def _summary(platform: Platform, pipeline: str) -> RunSummary:
    with platform.transaction() as conn:
        run = choose_run(conn, pipeline)
        if run is None:
            raise LookupError(f"{pipeline} left no run")
        return summarise_run(conn, run)


def _pipeline_name(policy: str) -> str:
    return re.sub(r"\W+", "_", policy).strip("_").lower()


def _write_project(folder: Path, stream: LabelledStream, triggers: Blocks) -> None:
    for name in ("datasets", "pipelines"):
        (folder / name).mkdir()
    _write(folder / "datasets" / f"{stream.name}.yaml", stream.dataset(folder / "data"))
    for name, trigger in triggers.items():
        pipeline = {
            "name": name,
            "dataset": stream.name,
            "trigger": trigger,
            "selection": {"window": "since_last_trigger"},
            "training": dict(stream.training),
            "evaluation": {"intervals": {"kind": "tumbling", "every": stream.units.interval}, "metrics": ["accuracy"]},
        }
        _write(folder / "pipelines" / f"{name}.yaml", pipeline)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
