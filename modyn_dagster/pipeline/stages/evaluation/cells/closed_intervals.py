"""Cells of the evaluation matrix: one model on the closed intervals and slices, from its stored predictions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from modyn_dagster.catalog.database.mapping import as_timestamp
from modyn_dagster.catalog.results.evaluations import CellResult, EvaluationRow
from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.evaluation.cells import cell_confidence, score_intervals
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.keys import ordinals_of
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.stages.evaluation.cells.estimates import calibration_of, estimated_cells
from modyn_dagster.pipeline.stages.evaluation.cells.plans import (
    ALL,
    CellPlan,
    Intervals,
    cell_plans,
    estimated_metrics,
    subsets_of,
    wanted_estimates,
)
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet
from modyn_dagster.pipeline.stages.evaluation.evaluation_matrix import closed_model_intervals
from modyn_dagster.pipeline.stages.evaluation.stored_predictions import StoredPredictions
from modyn_dagster.spec.tasks.metrics import estimated_metric

#: Start, end, metric and subset of a cell.
CellKey = tuple[datetime, datetime, str, str]


@dataclass(frozen=True, slots=True)
class ScoredCells:
    """Rows of new and changed cells, and ids of cells to remove because no sample is in their subset any more."""

    rows: Sequence[dict[str, Any]] = ()
    removed: Sequence[int] = ()


#: Looks up the results of cells with some addresses, in any run.
KnownResults = Callable[[Sequence[str]], Mapping[str, CellResult]]


def score_closed_intervals(
    context: TriggerContext,
    model: ModelRow,
    data: EvaluationSet,
    stored: StoredPredictions | None,
    cells: Sequence[EvaluationRow],
    known_results: KnownResults,
    *,
    finished: bool,
) -> ScoredCells:
    """Score the cells of every closed interval from all predictions of the model; nothing is written.

    ``cells`` are the recorded ones of the model. A cell's address is a digest of everything its value depends on. Where any run
    has a cell with the same address, its result is reused; only the others are computed. Deleted samples do not count, even
    where they were predicted before. A slice has cells where it has samples.
    """
    if stored is None:
        return ScoredCells()
    subsets = subsets_of(context, data, data.evaluated(stored.predictions))
    intervals = closed_model_intervals(context, data, finished=finished)
    contents = stored.contents(data.view.batches_at(np.unique(ordinals_of(subsets[ALL].keys)).tolist()))
    calibration = calibration_of(context) if estimated_metrics(context) else None
    made = cell_plans(context, model, data, subsets, intervals, contents, calibration)
    plans = {cell_key(intervals, plan): plan for plan in made}
    recorded = {(cell.interval_start, cell.interval_end, cell.metric, cell.subset): cell for cell in cells}
    outdated = [plan for key, plan in plans.items() if not _is_current(recorded.get(key), plan)]
    results = dict(known_results([plan.address for plan in outdated])) if outdated else {}
    missing = [plan for plan in outdated if plan.address not in results]
    for subset, members in subsets.items():
        measured = [plan for plan in missing if plan.subset == subset and estimated_metric(plan.metric) is None]
        results |= computed_results(context, members, intervals, measured)
    if calibration is not None:
        results |= estimated_cells(context, model, calibration, subsets, intervals, wanted_estimates(missing))
    rows = [cell_row(context, model, data, intervals, plan, results[plan.address]) for plan in outdated]
    # Intervals of the whole matrix that were scored on request stay as they are.
    scored = {key[:2] for key in plans}
    return ScoredCells(rows, [c.id for key, c in recorded.items() if c.subset != ALL and key[:2] in scored and key not in plans])


def _is_current(cell: EvaluationRow | None, plan: CellPlan) -> bool:
    return cell is not None and (cell.address, cell.n_deleted) == (plan.address, plan.n_deleted)


def computed_results(
    context: TriggerContext, predictions: Predictions, intervals: Intervals, plans: Sequence[CellPlan]
) -> Mapping[str, CellResult]:
    """Compute the results of some cells, by address; intervals that lack the same metrics are scored in one batch."""
    missing_by_interval: dict[int, list[CellPlan]] = {}
    for plan in plans:
        missing_by_interval.setdefault(plan.interval, []).append(plan)
    intervals_by_metrics: dict[tuple[str, ...], list[int]] = {}
    for number, missing in missing_by_interval.items():
        intervals_by_metrics.setdefault(tuple(plan.metric for plan in missing), []).append(number)
    spec, results = context.spec.evaluation, {}
    for metrics, numbers in intervals_by_metrics.items():
        chosen = [intervals[number] for number in numbers]
        scored = score_intervals(predictions, chosen, metrics, min_samples=spec.min_samples)
        level, resamples = spec.confidence.level, spec.confidence.resamples
        confidences = cell_confidence(predictions, chosen, scored, level=level, resamples=resamples)
        for number, cell, ends in zip(numbers, scored, confidences, strict=True):
            for plan in missing_by_interval[number]:
                score, end = cell[plan.metric], ends.get(plan.metric)
                low, high = (None, None) if end is None else (end.low, end.high)
                results[plan.address] = CellResult(score.value, score.reason, low, high)
    return results


def cell_key(intervals: Intervals, plan: CellPlan) -> CellKey:
    """Identify a planned cell among those of its model."""
    interval = intervals[plan.interval]
    return as_timestamp(interval.start), as_timestamp(interval.end), plan.metric, plan.subset


def cell_row(
    context: TriggerContext, model: ModelRow, data: EvaluationSet, intervals: Intervals, plan: CellPlan, result: CellResult
) -> dict[str, Any]:
    """Values of the row of a cell."""
    start, end, metric, subset = cell_key(intervals, plan)
    return {
        "trigger_id": context.trigger.id,
        "interval_start": start,
        "interval_end": end,
        "metric": metric,
        "n_samples": plan.n_samples,
        "n_deleted": plan.n_deleted,
        "value": result.value,
        "undefined": result.undefined,
        "seen_in_training": data.trained_on and start <= model.train_end and end > model.train_start,
        "address": plan.address,
        "subset": subset,
        "low": result.low,
        "high": result.high,
    }
