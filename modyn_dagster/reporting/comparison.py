"""Pipelines side by side, judged only where all of them could be."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Final

import sqlalchemy as sa

from modyn_dagster.catalog.runs import RunRow, choose_run
from modyn_dagster.errors import ConfigError
from modyn_dagster.reporting.scores import Interval, mean_score
from modyn_dagster.reporting.summary import RunSummary, SeedSpread, seed_spreads, summarise_run, with_other_seeds
from modyn_dagster.spec.load import parse_spec
from modyn_dagster.spec.pipeline import PipelineSpec

#: MLflow refuses a name with such a character.
_REFUSED: Final = re.compile(r"[()]")


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """One run of a comparison; ``label`` tells it from the others, ``score`` is its mean over the shared intervals."""

    label: str
    summary: RunSummary
    score: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain values; times in ISO 8601."""
        return {"label": self.label, "mean_active_score_on_shared_intervals": self.score, **self.summary.to_json()}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs judged on ``shared``: the intervals where every one has an active model and a defined score.

    ``n_intervals`` counts the intervals of any of them; ``missing`` names pipelines that never ran; ``spreads`` has the mean
    and the deviation of every pipeline that ran with several seeds.
    """

    metric: str | None
    runs: tuple[ComparedRun, ...]
    shared: tuple[Interval, ...]
    n_intervals: int
    missing: tuple[str, ...] = ()
    spreads: tuple[SeedSpread, ...] = ()

    def numbers(self) -> dict[str, float]:
        """Scores by name as MLflow takes them: of every run, and mean and deviation over several seeds."""
        several = {spread.pipeline for spread in self.spreads}
        found = {}
        for run in self.runs:
            name = f"{run.summary.pipeline} seed {run.summary.seed}" if run.summary.pipeline in several else run.label
            if run.score is not None:
                found[f"score {_REFUSED.sub('', name)}"] = run.score
        for spread in self.spreads:
            if spread.score is not None:
                found[f"score {spread.pipeline} mean"] = spread.score.mean
                found[f"score {spread.pipeline} deviation"] = spread.score.deviation
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain values; times in ISO 8601."""
        return {
            "metric": self.metric,
            "shared_intervals": [[moment.astimezone(UTC).isoformat() for moment in interval] for interval in self.shared],
            "n_intervals": self.n_intervals,
            "missing": list(self.missing),
            "runs": [run.to_json() for run in self.runs],
            "seeds": [spread.to_json() for spread in self.spreads],
        }


def compare_runs(summaries: Sequence[RunSummary], missing: Sequence[str] = ()) -> Comparison:
    """Compare runs that were scored by the same metric, else ``ConfigError``; their order is kept."""
    metrics = {summary.metric for summary in summaries}
    if len(metrics) > 1:
        found = {summary.pipeline: summary.metric for summary in summaries}
        raise ConfigError("comparison", "evaluation.score", found, "must be one metric for all compared pipelines")
    intervals = {score.interval for summary in summaries for score in summary.active}
    scored = [{score.interval for score in summary.active if score.value is not None} for summary in summaries]
    shared = frozenset.intersection(*map(frozenset, scored)) if scored else frozenset()
    scores = [mean_score(summary.active, among=shared).value for summary in summaries]
    return Comparison(
        metric=next(iter(metrics), None),
        runs=tuple(map(ComparedRun, _labels(summaries), summaries, scores)),
        shared=tuple(sorted(shared)),
        n_intervals=len(intervals),
        missing=tuple(missing),
        spreads=seed_spreads(summaries, scores),
    )


def compare_pipelines(conn: sa.Connection, pipelines: Sequence[str], metric: str | None = None) -> Comparison:
    """Compare the runs that stand for some pipelines (``choose_run``), each with its replays of other seeds.

    Without ``metric`` it is the score that all of them name, else the first metric they all evaluate.

    Raises:
        ConfigError: there is no metric that all of them evaluate.
    """
    chosen = {pipeline: choose_run(conn, pipeline) for pipeline in pipelines}
    runs = [each for run in chosen.values() if run is not None for each in with_other_seeds(conn, run)]
    metric = common_metrics(runs, metric)[0] if runs else metric
    missing = [pipeline for pipeline, run in chosen.items() if run is None]
    return compare_runs([summarise_run(conn, run, metric) for run in runs], missing)


def common_metrics(runs: Sequence[RunRow], wanted: str | None = None) -> tuple[str, ...]:
    """The metrics that all runs evaluate; first ``wanted``, else the score that all name, else the first of the first run.

    Raises:
        ConfigError: there is none, or ``wanted`` is none of them.
    """
    evaluations = {run.pipeline: parse_spec(run.spec, PipelineSpec, source=run.title).evaluation for run in runs}
    metrics: list[list[str]] = [list(evaluation.metrics) for evaluation in evaluations.values()]
    common = [name for name in metrics[0] if all(name in others for others in metrics)]
    scores: set[str] = {evaluation.score_metric for evaluation in evaluations.values()}
    candidates = [wanted] if wanted is not None else [*(scores if len(scores) == 1 else ()), *common]
    found = next((name for name in candidates if name in common), None)
    if found is None:
        listed = {pipeline: list(evaluation.metrics) for pipeline, evaluation in evaluations.items()}
        rule = f"must hold {wanted!r}" if wanted is not None else "must have one metric in common"
        raise ConfigError("comparison", "evaluation.metrics", listed, f"{rule} in all compared pipelines")
    return (found, *(name for name in common if name != found))


def _labels(summaries: Sequence[RunSummary]) -> list[str]:
    """Pipeline names; with the seed where a pipeline is there more than once, or the run's id where that does not tell."""
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
