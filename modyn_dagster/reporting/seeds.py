"""Runs of one pipeline with several seeds: which belong together, and how far they lie apart."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.runs import RunRow, list_runs
from modyn_dagster.reporting.summary import RunSummary


@dataclass(frozen=True, slots=True)
class Spread:
    """The mean over the seeds, and their standard deviation (of the sample: over n - 1)."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Spread | None":
        """Of at least two values; None where one of them is not known."""
        found = list(values)
        known = [value for value in found if value is not None]
        return cls(mean(known), stdev(known)) if len(known) == len(found) else None


@dataclass(frozen=True, slots=True)
class SeedSpread:
    """One pipeline over several seeds; ``score`` is over the intervals that all compared runs share."""

    pipeline: str
    seeds: tuple[int, ...]
    triggers: Spread | None
    samples_trained_on: Spread | None
    seconds: Spread | None
    n_bytes: Spread | None
    score: Spread | None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        names = ("triggers", "samples_trained_on", "seconds", "n_bytes", "score")
        spreads: dict[str, Spread | None] = {name: getattr(self, name) for name in names}
        plain = {name: None if s is None else {"mean": s.mean, "deviation": s.deviation} for name, s in spreads.items()}
        return {"pipeline": self.pipeline, "seeds": list(self.seeds), **plain}


def with_other_seeds(conn: sa.Connection, run: RunRow) -> list[RunRow]:
    """A replay, and the newest of the same name and spec for every other seed, by seed; a live run alone."""
    if run.mode != "replay":
        return [run]
    same = [r for r in list_runs(conn, run.pipeline) if (r.mode, r.spec_hash, r.name) == ("replay", run.spec_hash, run.name)]
    newest = {other.seed: other for other in same} | {run.seed: run}
    return [newest[seed] for seed in sorted(newest)]


def seed_spreads(summaries: Sequence[RunSummary], scores: Sequence[float | None]) -> tuple[SeedSpread, ...]:
    """One for every pipeline that was run with more than one seed, each of them once; ``scores`` are those of the summaries."""
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
