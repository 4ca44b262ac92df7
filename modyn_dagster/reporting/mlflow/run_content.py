"""MLflow content of a pipeline run: rows of the catalog as parameters, tags and metrics."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.decisions import DecisionRow, scored_decisions
from modyn_dagster.catalog.results.evaluations import list_evaluations, list_intervals
from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.catalog.results.promotions import served_moments
from modyn_dagster.catalog.results.training_sets import FillPoint, list_fills
from modyn_dagster.catalog.runs import RunRow, get_run
from modyn_dagster.reporting.estimates import hold
from modyn_dagster.reporting.mlflow.content import (
    Content,
    DagsterRun,
    description,
    flatten,
    known_tags,
    run_identity,
    stream_inputs,
)
from modyn_dagster.reporting.mlflow.series import Point, composite_points, decision_series, fill_series, system_series
from modyn_dagster.reporting.mlflow.stream_time import StreamTime, interval_tags, milliseconds
from modyn_dagster.reporting.scores import CompositeSeries, Interval, composite_series, spec_of
from modyn_dagster.reporting.summary import RunSummary, summarise_run
from modyn_dagster.spec.pipeline import DISPLAY_FIELDS
from modyn_dagster.spec.triggers.trigger import measures

_RUN_STATUS: Final = {
    "active": "RUNNING",
    "waiting": "RUNNING",
    "stopping": "RUNNING",
    "stopped": "RUNNING",
    "finished": "FINISHED",
    "ended": "FINISHED",
}


def run_content(
    run: RunRow,
    summary: RunSummary,
    intervals: Sequence[Interval],
    dagster: DagsterRun,
    decisions: Sequence[DecisionRow] = (),
    fills: Sequence[FillPoint] = (),
    composites: Mapping[str, CompositeSeries] = MappingProxyType({}),
    models: Sequence[ModelRow] = (),
) -> Content:
    """Content of a pipeline run.

    Args:
        run: its spec becomes the parameters.
        summary: cost and score, as numbers.
        intervals: of the run, in order of time.
        dagster: Dagster run that did the work.
        decisions: with a measured score, as series.
        fills: of the time-biased sample, as series.
        composites: scores of the composite models by metric, as series.
        models: of the run, for the load of their trainings, as series.
    """
    spec = {name: value for name, value in run.spec.items() if name not in DISPLAY_FIELDS}
    settings = {"seed": run.seed, "threads": run.threads, "run": {"mode": run.mode, "name": run.name}}
    note = description([run.title, str(run.spec.get("description") or "")], dagster.url)
    tags = {
        "modyn/pipeline": run.pipeline,
        "modyn/mode": run.mode,
        "modyn/state": run.state,
        "modyn/spec_hash": run.spec_hash,
        "modyn/hole_set": None if run.hole_set_id is None else str(run.hole_set_id),
        "dagster/run_id": dagster.id,
        "dagster/asset_key": f"{run.pipeline}/{'replay' if run.mode == 'replay' else 'model'}",
    }
    return Content(
        name=" ".join(filter(None, [run.mode, f"{run.id:06d}", run.name])),
        identity={"modyn/kind": "run", **run_identity(run)},
        status=_RUN_STATUS[run.state],
        start=milliseconds(run.created_at),
        end=None if run.finished_at is None else milliseconds(run.finished_at),
        tags={**known_tags(tags), **interval_tags(intervals), **(note if dagster.url else {})},
        params=flatten({**spec, **settings}),
        defaults=note,
        series={
            **decision_series(decisions),
            **fill_series(fills),
            **_load_series(models),
            **composite_points(composites, StreamTime.of_run(run, intervals), ended=run.state in ("finished", "ended")),
        },
        numbers=_summary_numbers(summary),
        inputs=stream_inputs(run),
    )


def comparison_tags(dataset: str, dagster: DagsterRun) -> dict[str, str]:
    """Tags of the comparison of a dataset's pipelines: its asset, Dagster run and description."""
    tags = {"dagster/run_id": dagster.id, "dagster/asset_key": f"{dataset}/comparison"}
    return known_tags(tags) | description([f"Pipelines of {dataset} side by side"], dagster.url)


def _summary_numbers(summary: RunSummary) -> dict[str, float]:
    numbers = {
        "triggers": float(summary.triggers.trained),
        "samples_trained_on": float(summary.samples_trained_on),
        "seconds/total": summary.total_seconds,
    }
    if summary.mean_active is not None:
        numbers[f"mean_active/{summary.metric}"] = summary.mean_active
    if summary.mean_served is not None:
        numbers[f"mean_served/{summary.metric}"] = summary.mean_served
    if summary.mean_own is not None:
        numbers[f"mean_own/{summary.metric}"] = summary.mean_own
    held = hold(summary.estimated, summary.active)
    if held.distance is not None:
        numbers |= {"estimated/distance": held.distance, "estimated/held": held.inside / held.n}
    return numbers | {f"seconds/{stage}": seconds for stage, seconds in summary.seconds.items()}


def read_run(engine: sa.Engine, run_id: int, dagster: DagsterRun) -> tuple[RunRow, Content, RunSummary, Sequence[Interval]]:
    """A run, its content for MLflow, its summary and its intervals in order of time."""
    with transaction(engine) as conn:
        run = get_run(conn, run_id)
        summary = summarise_run(conn, run)
        intervals = list_intervals(conn, run_id)
        models = list_models(conn, run_id)
        shown = _measured_decisions(conn, run), list_fills(conn, run_id), _composites(conn, run, models), models
        content = run_content(run, summary, intervals, dagster, *shown)
    return run, content, summary, intervals


def _composites(conn: sa.Connection, run: RunRow, models: Sequence[ModelRow]) -> dict[str, CompositeSeries]:
    """Scores of the composite models, by metric."""
    spec = spec_of(run)
    cells = list_evaluations(conn, run.id)
    served = () if spec.promotion is None else served_moments(conn, run.id)
    return {metric: composite_series(models, cells, metric, spec.evaluation, served) for metric in spec.evaluation.metrics}


def _measured_decisions(conn: sa.Connection, run: RunRow) -> list[DecisionRow]:
    """Decisions based on a measurement; a number of samples is no score worth a curve."""
    return scored_decisions(conn, run.id) if measures(spec_of(run).trigger) else []


def _load_series(models: Sequence[ModelRow]) -> dict[str, list[Point]]:
    """Largest processor time and memory of each training, by trigger, at its end."""
    series: dict[str, list[Point]] = {}
    for model in models:
        for name, points in system_series(model).items():
            largest = max(point.value for point in points)
            series.setdefault(name, []).append(Point(model.ordinal, points[-1].timestamp, largest))
    return series
