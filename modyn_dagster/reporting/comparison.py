"""Comparison of pipelines on the intervals where all of them have a score."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Final

import sqlalchemy as sa

from modyn_dagster.catalog.runs import RunRow, choose_run
from modyn_dagster.errors import ConfigError
from modyn_dagster.reporting.scores import Interval, IntervalScore, mean_score, spec_of, with_final_values
from modyn_dagster.reporting.seed_spread import SeedSpread, seed_spreads, with_other_seeds
from modyn_dagster.reporting.summary import RunSummary, summarise_run

#: Characters that MLflow refuses in a name.
_REFUSED: Final = re.compile(r"[()]")


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One run of a comparison.

    Attributes:
        label: unique in the comparison.
        summary: of the run.
        score: mean of the currently active model over the shared intervals.
        final: the same with the labels that have arrived until now, over the intervals where every run has such a score; None
            where no run has labels that arrive later.
        served: mean of the champion of the time over the shared intervals; None where the pipeline promotes nothing.
        own: mean of the user's composite model over the shared intervals; None without one.
    """

    label: str
    summary: RunSummary
    score: float | None
    final: float | None = None
    served: float | None = None
    own: float | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON values; times in ISO 8601."""
        scores = {"mean_active_score_on_shared_intervals": self.score, "mean_final_score_on_shared_intervals": self.final}
        if self.summary.served:
            scores["mean_served_score_on_shared_intervals"] = self.served
        if self.summary.own:
            scores["mean_own_score_on_shared_intervals"] = self.own
        return {"label": self.label, **scores, **self.summary.to_json()}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs of several pipelines, scored on shared intervals.

    Attributes:
        metric: of the scores.
        runs: in the order of the pipelines.
        shared: intervals where every run has an active model and a defined score.
        n_final: number of intervals where every run has a score with the labels so far; 0 where no labels arrive later.
        n_intervals: number of intervals of any run.
        missing: pipelines that never ran.
        spreads: mean and deviation of every pipeline that ran with several seeds.
    """

    metric: str | None
    runs: tuple[ComparedRun, ...]
    shared: tuple[Interval, ...]
    n_intervals: int
    missing: tuple[str, ...] = ()
    spreads: tuple[SeedSpread, ...] = ()
    n_final: int = 0

    def numbers(self) -> dict[str, float]:
        """Scores by names that MLflow accepts: of every run, and mean and deviation over several seeds."""
        several = {spread.pipeline for spread in self.spreads}
        numbers = {}
        for run in self.runs:
            name = f"{run.summary.pipeline} seed {run.summary.seed}" if run.summary.pipeline in several else run.label
            if run.score is not None:
                numbers[f"score {_REFUSED.sub('', name)}"] = run.score
            if run.final is not None:
                numbers[f"final score {_REFUSED.sub('', name)}"] = run.final
        for spread in self.spreads:
            if spread.score is not None:
                numbers[f"score {spread.pipeline} mean"] = spread.score.mean
                numbers[f"score {spread.pipeline} deviation"] = spread.score.deviation
        return numbers

    def to_json(self) -> dict[str, Any]:
        """JSON values; times in ISO 8601."""
        return {
            "metric": self.metric,
            "shared_intervals": [[moment.astimezone(UTC).isoformat() for moment in interval] for interval in self.shared],
            "n_intervals": self.n_intervals,
            "n_final_intervals": self.n_final,
            "missing": list(self.missing),
            "runs": [run.to_json() for run in self.runs],
            "seeds": [spread.to_json() for spread in self.spreads],
        }


def compare_runs(summaries: Sequence[RunSummary], missing: Sequence[str] = ()) -> Comparison:
    """Compare runs, keeping their order; ``ConfigError`` unless all are scored by the same metric."""
    metrics = {summary.metric for summary in summaries}
    if len(metrics) > 1:
        listed = {summary.pipeline: summary.metric for summary in summaries}
        raise ConfigError("comparison", "evaluation.score", listed, "must be one metric for all compared pipelines")
    intervals = {score.interval for summary in summaries for score in summary.active}
    shared, scores = _on_shared([summary.active for summary in summaries])
    finally_shared, final = frozenset[Interval](), list[float | None]([None] * len(summaries))
    if any(map(_has_late_labels, summaries)):
        finally_shared, final = _on_shared([with_final_values(summary.active) for summary in summaries])
    served, own = (
        [mean_score(scored, among=shared).value if scored else None for scored in found]
        for found in ([summary.served for summary in summaries], [summary.own for summary in summaries])
    )
    return Comparison(
        metric=next(iter(metrics), None),
        runs=tuple(map(ComparedRun, _labels(summaries), summaries, scores, final, served, own)),
        shared=tuple(sorted(shared)),
        n_intervals=len(intervals),
        missing=tuple(missing),
        spreads=seed_spreads(summaries, scores),
        n_final=len(finally_shared),
    )


def _on_shared(series: Sequence[Sequence[IntervalScore]]) -> tuple[frozenset[Interval], list[float | None]]:
    """Intervals where all series have a score, and the mean of each over them."""
    scored = [frozenset(score.interval for score in scores if score.value is not None) for scores in series]
    shared = frozenset.intersection(*scored) if scored else frozenset()
    return shared, [mean_score(scores, among=shared).value for scores in series]


def _has_late_labels(summary: RunSummary) -> bool:
    return any(score.late is not None for score in summary.active)


def compare_pipelines(conn: sa.Connection, pipelines: Sequence[str], metric: str | None = None) -> Comparison:
    """Compare pipelines by the runs of ``choose_runs``.

    The default metric is the score that all of them name, else the first metric that all of them evaluate.

    Raises:
        ConfigError: there is no metric that all of them evaluate.
    """
    runs, missing = choose_runs(conn, pipelines)
    metric = common_metrics(runs, metric)[0] if runs else metric
    return compare_runs([summarise_run(conn, run, metric) for run in runs], missing)


def compare_seeds(conn: sa.Connection, run: RunRow) -> Comparison:
    """Compare one run with the same replay of other seeds, by the score of its spec."""
    return compare_runs([summarise_run(conn, each) for each in with_other_seeds(conn, run)])


def choose_runs(conn: sa.Connection, pipelines: Sequence[str]) -> tuple[list[RunRow], list[str]]:
    """Runs that represent some pipelines (``choose_run``), each with its replays of other seeds; pipelines that never ran."""
    chosen = {pipeline: choose_run(conn, pipeline) for pipeline in pipelines}
    runs = [seed for run in chosen.values() if run is not None for seed in with_other_seeds(conn, run)]
    return runs, [pipeline for pipeline, run in chosen.items() if run is None]


def common_metrics(runs: Sequence[RunRow], first: str | None = None) -> tuple[str, ...]:
    """Metrics that all runs evaluate: ``first``, else the score that all name, else in the order of the first run.

    Raises:
        ConfigError: there is none, or ``first`` is not among them.
    """
    evaluations = {run.pipeline: spec_of(run).evaluation for run in runs}
    metrics: list[list[str]] = [list(evaluation.metrics) for evaluation in evaluations.values()]
    common = [name for name in metrics[0] if all(name in others for others in metrics)]
    scores: set[str] = {evaluation.score_metric for evaluation in evaluations.values()}
    candidates = [first] if first is not None else [*(scores if len(scores) == 1 else ()), *common]
    chosen = next((name for name in candidates if name in common), None)
    if chosen is None:
        listed = {pipeline: list(evaluation.metrics) for pipeline, evaluation in evaluations.items()}
        rule = f"must hold {first!r}" if first is not None else "must have one metric in common"
        raise ConfigError("comparison", "evaluation.metrics", listed, f"{rule} in all compared pipelines")
    return (chosen, *(name for name in common if name != chosen))


def _labels(summaries: Sequence[RunSummary]) -> list[str]:
    """Pipeline names; with the seed if a pipeline has several runs, or the run's id if the seed is ambiguous."""
    count = Counter(summary.pipeline for summary in summaries)
    seeds = Counter((summary.pipeline, summary.seed) for summary in summaries)
    repeated = {pipeline for (pipeline, _), n in seeds.items() if n > 1}
    return [
        s.pipeline
        if count[s.pipeline] == 1
        else f"{s.pipeline} (run {s.run_id})"
        if s.pipeline in repeated
        else f"{s.pipeline} (seed {s.seed})"
        for s in summaries
    ]
