"""Comparison report from the catalog: one record per run, on the intervals of all runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.catalog.decisions import scored_decisions
from modyn_dagster.catalog.results.evaluations import EvaluationRow, list_evaluations
from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.timings import bytes_by_trigger, seconds_by_trigger
from modyn_dagster.catalog.triggers import UNFINISHED, list_triggers
from modyn_dagster.evaluation import anchor_of
from modyn_dagster.evaluation.composite.confusion import RunConfusion
from modyn_dagster.reporting.comparison import choose_runs, common_metrics
from modyn_dagster.reporting.page.data import Counts, DecisionSeries, Float64, PipelineRecord, ReportData, Times
from modyn_dagster.reporting.promotion.live_history import read_history
from modyn_dagster.reporting.promotion.tables import live_table
from modyn_dagster.reporting.scores import Interval, spec_of, times_of

_STAGES: Final = ("select", "train", "save", "evaluate")
#: Behind the name of a metric that is scored with the labels so far.
_FINAL: Final = " (final)"
_COVERAGE: Final = "label coverage"


#: Confusion of the composite models of a run; a damaged prediction file is an error.
ReadConfusion = Callable[[sa.Connection, RunRow], RunConfusion | None]


def read_report(
    conn: sa.Connection,
    pipelines: Sequence[str],
    *,
    title: str,
    metric: str | None = None,
    confusion_of: ReadConfusion | None = None,
) -> ReportData:
    """Read the runs of some pipelines (``choose_runs``) with the metrics that all of them evaluate.

    Args:
        conn: to the catalog.
        pipelines: names.
        title: of the page.
        metric: shown first; default: the score of the pipelines.
        confusion_of: reads the confusion of a run; default: the page has none.

    Raises:
        ConfigError: there is no metric that all of them evaluate.
    """
    runs, missing = choose_runs(conn, pipelines)
    metrics = common_metrics(runs, metric) if runs else ()
    cells = {run.id: with_final_scores(list_evaluations(conn, run.id, subsets=True)) for run in runs}
    found = {cell.metric for rows in cells.values() for cell in rows}
    metrics = (*metrics, *(name for name in (*(f"{each}{_FINAL}" for each in metrics), _COVERAGE) if name in found))
    intervals = sorted({(cell.interval_start, cell.interval_end) for rows in cells.values() for cell in rows})
    starts, ends = (times_of(interval[side] for interval in intervals) for side in (0, 1))
    return ReportData(
        title=title,
        starts=starts,
        ends=ends,
        anchors=_anchors(runs, cells, intervals),
        metrics=metrics,
        pipelines=tuple(_record(conn, run, runs, cells[run.id], intervals, metrics, confusion_of) for run in runs),
        missing=tuple(missing),
    )


def with_final_scores(cells: Sequence[EvaluationRow]) -> list[EvaluationRow]:
    """Add the final scores of cells whose labels arrive later, and their label coverage as known, as metrics of their own."""
    late = [cell for cell in cells if cell.n_labelled is not None]
    final = [
        replace(cell, metric=f"{cell.metric}{_FINAL}", value=cell.final_value, low=cell.final_low, high=cell.final_high)
        for cell in late
    ]
    # Every metric of an interval has the same coverage.
    coverage = {(cell.ordinal, cell.interval_start, cell.interval_end, cell.subset): cell for cell in late}
    shares = [
        replace(cell, metric=_COVERAGE, value=(cell.n_labelled or 0) / max(1, cell.n_samples), low=None, high=None)
        for cell in coverage.values()
    ]
    return [*cells, *final, *shares]


def _anchors(runs: Sequence[RunRow], cells: Mapping[int, Sequence[EvaluationRow]], intervals: Sequence[Interval]) -> Times:
    """Anchors of the intervals, from the first run that has each."""
    anchors: dict[Interval, np.datetime64] = {}
    for run in reversed(runs):
        block = spec_of(run).evaluation.intervals
        for start, end in {(cell.interval_start, cell.interval_end) for cell in cells[run.id]}:
            anchors[start, end] = anchor_of(block, as_datetime64(start), as_datetime64(end))
    return np.array([anchors[interval] for interval in intervals], dtype="datetime64[us]")


def _record(
    conn: sa.Connection,
    run: RunRow,
    runs: Sequence[RunRow],
    cells: Sequence[EvaluationRow],
    intervals: Sequence[Interval],
    metrics: Sequence[str],
    confusion_of: ReadConfusion | None,
) -> PipelineRecord:
    models = list_models(conn, run.id)
    several = sum(other.pipeline == run.pipeline for other in runs) > 1
    states = [trigger.state for trigger in list_triggers(conn, run.id)]
    spent = seconds_by_trigger(conn, run.id)
    spec = spec_of(run)
    with_model, delay, until = {model.trigger_id for model in models}, spec.label_delay, spec.training.possibly_seen_until
    other: dict[str, float] = {}
    for (trigger_id, stage), seconds in spent.items():
        if trigger_id not in with_model or stage not in _STAGES:
            other[stage] = other.get(stage, 0.0) + seconds
    whole = [cell for cell in cells if cell.subset == ""]
    parts = sorted({cell.subset for cell in cells} - {""})
    written = bytes_by_trigger(conn, run.id)
    history = read_history(conn, run)
    return PipelineRecord(
        label=f"{run.pipeline} (seed {run.seed})" if several else run.pipeline,
        group=run.pipeline,
        state=run.state,
        train_ends=times_of(model.train_end for model in models),
        n_samples=np.array([model.n_samples for model in models], dtype=np.int64),
        seconds={stage: np.array([spent.get((m.trigger_id, stage), 0.0) for m in models]) for stage in _STAGES},
        matrices=_matrices(models, whole, intervals, metrics),
        other_seconds=other,
        decisions=_decisions(conn, run),
        n_failed=sum(state not in ("trained", *UNFINISHED) for state in states),
        n_bytes=sum(written.values()) if written else None,
        lows=_defined(_matrices(models, whole, intervals, metrics, "low")),
        highs=_defined(_matrices(models, whole, intervals, metrics, "high")),
        slices={part: _matrices(models, [c for c in cells if c.subset == part], intervals, metrics) for part in parts},
        slice_samples={part: _sample_counts([c for c in cells if c.subset == part], intervals) for part in parts},
        confusion=None if confusion_of is None else confusion_of(conn, run),
        label_delay=None if delay is None else delay.words(),
        pretrained_until=None if until is None else until.isoformat(" "),
        live=None if history is None else live_table(history),
    )


def _matrices(
    models: Sequence[ModelRow],
    cells: Sequence[EvaluationRow],
    intervals: Sequence[Interval],
    metrics: Sequence[str],
    field: Literal["value", "low", "high"] = "value",
) -> dict[str, Float64]:
    matrices = {metric: np.full((len(models), len(intervals)), np.nan) for metric in metrics}
    row = {model.ordinal: index for index, model in enumerate(models)}
    column = {interval: index for index, interval in enumerate(intervals)}
    for cell in cells:
        number = getattr(cell, field)
        if cell.metric in matrices and number is not None:
            matrices[cell.metric][row[cell.ordinal], column[cell.interval_start, cell.interval_end]] = number
    return matrices


def _sample_counts(cells: Sequence[EvaluationRow], intervals: Sequence[Interval]) -> Counts:
    """Samples by interval; cells come in trigger order, and only the newest model's count includes late samples."""
    newest = {(cell.interval_start, cell.interval_end): cell.n_samples for cell in cells}
    return np.array([newest.get(interval, 0) for interval in intervals], dtype=np.int64)


def _defined(matrices: Mapping[str, Float64]) -> dict[str, Float64]:
    return {metric: values for metric, values in matrices.items() if np.isfinite(values).any()}


def _decisions(conn: sa.Connection, run: RunRow) -> DecisionSeries | None:
    rows = scored_decisions(conn, run.id)
    if not rows:
        return None
    return DecisionSeries(
        times=times_of(row.time for row in rows),
        scores=np.array([row.score for row in rows], dtype=np.float64),
        thresholds=np.array([np.nan if row.threshold is None else row.threshold for row in rows], dtype=np.float64),
        fired=np.array([row.fire for row in rows], dtype=np.bool_),
    )
