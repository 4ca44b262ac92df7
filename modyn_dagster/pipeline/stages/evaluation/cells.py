"""Cells of the evaluation matrix: one model on the closed intervals and slices, from its stored predictions."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.database.mapping import as_timestamp
from modyn_dagster.catalog.results.evaluations import CellResult, EvaluationRow
from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.evaluation.cells import cell_address, cell_confidence, data_versions, score_intervals
from modyn_dagster.evaluation.intervals.generation import Interval
from modyn_dagster.evaluation.metrics.registry import metric_code
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.keys import ordinals_of, positions_of
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.models import predictor_id
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet
from modyn_dagster.pipeline.stages.evaluation.evaluation_matrix import closed_model_intervals
from modyn_dagster.pipeline.stages.evaluation.stored_predictions import StoredPredictions

#: Subset of all samples.
ALL: Final = ""


def subsets_of(context: TriggerContext, data: EvaluationSet, predictions: Predictions) -> Mapping[str, Predictions]:
    """Split predictions into the slices of the spec, by ``name=value``, beside all of them; skip samples without a value."""
    subsets = {ALL: predictions}
    for name in context.spec.evaluation.slices:
        values = _labels(context, predictions) if name == "label" else _attribute(data, name, predictions)
        present = np.flatnonzero(values != None)  # noqa: E711 - of every element
        texts, groups = np.unique(values[present].astype(str), return_inverse=True)
        for number, text in enumerate(texts.tolist()):
            subsets[f"{name}={text}"] = predictions.take(present[groups == number])
    return subsets


def _labels(context: TriggerContext, predictions: Predictions) -> npt.NDArray[np.object_]:
    """Return the names of the samples' classes, or their numbers where they have no names."""
    # Classes that a label transform makes have no names.
    plain = context.spec.training.label_transform is None
    names = np.array([*context.view.row.class_names] if plain else [], dtype=object)
    truth = predictions.truth.astype(np.int64)
    values = np.array([str(label) for label in truth.tolist()], dtype=object)
    named = (truth >= 0) & (truth < len(names))
    values[named] = names[truth[named]]
    values[truth < 0] = None
    return values


def _attribute(data: EvaluationSet, name: str, predictions: Predictions) -> npt.NDArray[np.object_]:
    values = np.full(len(predictions), None, dtype=object)
    ordinals = ordinals_of(predictions.keys)
    for batch in data.view.batches_at(np.unique(ordinals).tolist()):
        rows = np.flatnonzero(ordinals == batch.ordinal)
        values[rows] = data.view.attribute(name, batch)[positions_of(predictions.keys[rows])]
    return values


Intervals = Sequence[Interval[np.datetime64]]
#: Start, end, metric and subset of a cell.
CellKey = tuple[datetime, datetime, str, str]


@dataclass(frozen=True, slots=True)
class CellPlan:
    """A cell that is to have a result: subset, number of the interval, metric, and the counts of its samples."""

    subset: str
    interval: int
    metric: str
    address: str
    n_samples: int
    n_deleted: int


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
    plans = {cell_key(intervals, plan): plan for plan in cell_plans(context, model, data, subsets, intervals, contents)}
    recorded = {(cell.interval_start, cell.interval_end, cell.metric, cell.subset): cell for cell in cells}
    outdated = [plan for key, plan in plans.items() if not _is_current(recorded.get(key), plan)]
    results = dict(known_results([plan.address for plan in outdated])) if outdated else {}
    missing = [plan for plan in outdated if plan.address not in results]
    for subset, members in subsets.items():
        results |= computed_results(context, members, intervals, [plan for plan in missing if plan.subset == subset])
    rows = [cell_row(context, model, data, intervals, plan, results[plan.address]) for plan in outdated]
    # Intervals of the whole matrix that were scored on request stay as they are.
    scored = {key[:2] for key in plans}
    return ScoredCells(rows, [c.id for key, c in recorded.items() if c.subset != ALL and key[:2] in scored and key not in plans])


def count_in(data: EvaluationSet, intervals: Intervals, *, deleted: bool) -> list[int]:
    """Count the deleted samples of each interval, or the present ones."""
    return count_times(data.times(deleted=deleted), intervals)


def _is_current(cell: EvaluationRow | None, plan: CellPlan) -> bool:
    return cell is not None and (cell.address, cell.n_deleted) == (plan.address, plan.n_deleted)


def cell_plans(
    context: TriggerContext,
    model: ModelRow,
    data: EvaluationSet,
    subsets: Mapping[str, Predictions],
    intervals: Intervals,
    contents: Mapping[int, str | None],
) -> list[CellPlan]:
    """Plan the cells of every interval and subset; each plan has the address of its result."""
    spec = context.spec.evaluation
    # Bits of predictions depend not only on weights, but also on how samples are read and on the number of threads.
    name = predictor_id(model.hash, context.spec.training)
    predictor = json.dumps([name, context.run.spec["training"], context.run.threads], sort_keys=True)
    settings: list[float] = [spec.min_samples, spec.confidence.level, spec.confidence.resamples]
    settings += [spec.min_coverage] if spec.min_coverage else []
    codes = {metric: metric_code(metric) for metric in spec.metrics}
    deleted = count_in(data, intervals, deleted=True)
    plans = []
    for subset, predictions in subsets.items():
        versions = data_versions(predictions, intervals, data.view.row.name, contents)
        counts = count_times(predictions.times, intervals)
        for i, (version, n_samples, n_deleted) in enumerate(zip(versions, counts, deleted, strict=True)):
            if subset == ALL or n_samples:
                for metric in spec.metrics:
                    address = cell_address(predictor, intervals[i], metric, version, settings, code=codes[metric])
                    plans.append(CellPlan(subset, i, metric, address, n_samples, n_deleted))
    return plans


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


def count_times(times: npt.NDArray[np.datetime64], intervals: Intervals) -> list[int]:
    """Count the times in each interval."""
    times = np.sort(times)
    starts, ends = (np.array([getattr(i, side) for i in intervals], dtype="datetime64[us]") for side in ("start", "end"))
    return [int(n) for n in np.searchsorted(times, ends) - np.searchsorted(times, starts)]


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
