"""Spread of a pipeline's runs over several seeds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.runs import RunRow, list_runs
from modyn_dagster.reporting.summary import RunSummary


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean over the seeds, and sample standard deviation (over n - 1)."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Spread | None":
        """Spread of at least two values; None if one of them is None."""
        numbers = list(values)
        present = [value for value in numbers if value is not None]
        return cls(mean(present), stdev(present)) if len(present) == len(numbers) else None


@dataclass(frozen=True, slots=True)
class SeedSpread:
    """Spread of one pipeline over several seeds; the score is over the intervals that all compared runs share."""

    pipeline: str
    seeds: tuple[int, ...]
    triggers: Spread | None
    samples_trained_on: Spread | None
    seconds: Spread | None
    n_bytes: Spread | None
    score: Spread | None

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        names = ("triggers", "samples_trained_on", "seconds", "n_bytes", "score")
        spreads: dict[str, Spread | None] = {name: getattr(self, name) for name in names}
        plain = {name: None if s is None else {"mean": s.mean, "deviation": s.deviation} for name, s in spreads.items()}
        return {"pipeline": self.pipeline, "seeds": list(self.seeds), **plain}


def with_other_seeds(conn: sa.Connection, run: RunRow) -> list[RunRow]:
    """A replay and the newest one of the same name and spec for every other seed, by seed; of a live run, only that run."""
    if run.mode != "replay":
        return [run]
    same = [r for r in list_runs(conn, run.pipeline) if (r.mode, r.spec_hash, r.name) == ("replay", run.spec_hash, run.name)]
    newest = {other.seed: other for other in same} | {run.seed: run}
    return [newest[seed] for seed in sorted(newest)]


def seed_spreads(summaries: Sequence[RunSummary], scores: Sequence[float | None]) -> tuple[SeedSpread, ...]:
    """Spread of every pipeline that ran with several seeds, once each; one score per summary."""
    groups: dict[str, list[tuple[RunSummary, float | None]]] = {}
    for summary, score in zip(summaries, scores, strict=True):
        groups.setdefault(summary.pipeline, []).append((summary, score))
    return tuple(
        SeedSpread(
            pipeline,
            tuple(summary.seed for summary, _ in runs),
            triggers=Spread.of(summary.triggers.trained for summary, _ in runs),
            samples_trained_on=Spread.of(summary.samples_trained_on for summary, _ in runs),
            seconds=Spread.of(summary.total_seconds for summary, _ in runs),
            n_bytes=Spread.of(summary.n_bytes for summary, _ in runs),
            score=Spread.of(score for _, score in runs),
        )
        for pipeline, runs in groups.items()
        if 1 < len(runs) == len({summary.seed for summary, _ in runs})
    )
