"""Cells of the evaluation matrix: one model on the closed intervals and slices, from its stored predictions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.database.mapping import as_timestamp
from modyn_dagster.catalog.results.evaluations import (
    CellResult,
    EvaluationRow,
    find_addresses,
    list_evaluations,
    record_evaluations,
    remove_evaluations,
)
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

#: Name of the subset of all samples.
ALL: Final = ""


def subsets_of(context: TriggerContext, data: EvaluationSet, predictions: Predictions) -> Mapping[str, Predictions]:
    """All predictions, and those of each slice the pipeline asks for by ``name=value``; samples without a value are in none."""
    found = {ALL: predictions}
    for name in context.spec.evaluation.slices:
        values = _labels(context, predictions) if name == "label" else _attribute(data, name, predictions)
        present = np.flatnonzero(values != None)  # noqa: E711 - of every element
        texts, groups = np.unique(values[present].astype(str), return_inverse=True)
        for number, text in enumerate(texts.tolist()):
            found[f"{name}={text}"] = predictions.take(present[groups == number])
    return found


def _labels(context: TriggerContext, predictions: Predictions) -> npt.NDArray[np.object_]:
    """Names of the classes, or their numbers where they have none."""
    # What a transform makes of classes has no names.
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
    for batch in data.view.batches:
        rows = np.flatnonzero(ordinals == batch.ordinal)
        if len(rows):
            values[rows] = data.view.attribute(name, batch)[positions_of(predictions.keys[rows])]
    return values


Intervals = Sequence[Interval[np.datetime64]]
#: Start, end, metric and subset of a cell.
CellKey = tuple[datetime, datetime, str, str]


@dataclass(frozen=True, slots=True)
class Place:
    """A cell that is to have a result: of which subset and interval (by its number), and what is known before it is scored."""

    subset: str
    interval: int
    metric: str
    address: str
    n_samples: int
    n_deleted: int


@dataclass(frozen=True, slots=True)
class ScoredCells:
    """Rows of cells that are new or follow from something else than before, and ids of cells that there are no samples of."""

    rows: Sequence[dict[str, Any]] = ()
    gone: Sequence[int] = ()


def score_closed_intervals(
    context: TriggerContext, model: ModelRow, data: EvaluationSet, predicted: Predictions | None, *, finished: bool
) -> ScoredCells:
    """What the cells of every closed interval are to be, from all that the model predicted; nothing is written.

    A cell's address is a digest of all its value follows from. Where a cell with the same address is known, from this run or
    any other, its result is taken over; only the others are computed. Deleted samples do not count, also where they
    were predicted before. A slice has cells where it has samples.
    """
    if predicted is None:
        return ScoredCells()
    with context.platform.transaction() as conn:
        cells = list_evaluations(conn, context.run.id, context.trigger.id, subsets=True)
    subsets = subsets_of(context, data, data.judged(predicted))
    intervals = closed_model_intervals(context, data, finished=finished)
    places = {_key(intervals, place): place for place in _places(context, model, data, subsets, intervals)}
    known = {(cell.interval_start, cell.interval_end, cell.metric, cell.subset): cell for cell in cells}
    wanted = [place for key, place in places.items() if not _stands(known.get(key), place)]
    with context.platform.transaction() as conn:
        results = find_addresses(conn, [place.address for place in wanted])
    missing = [place for place in wanted if place.address not in results]
    for subset, predictions in subsets.items():
        results |= _computed(context, predictions, intervals, [place for place in missing if place.subset == subset])
    rows = [_row(context, model, data, intervals, place, results[place.address]) for place in wanted]
    return ScoredCells(rows, [cell.id for key, cell in known.items() if cell.subset != ALL and key not in places])


def record_cells(context: TriggerContext, scored: ScoredCells) -> None:
    """Write what was scored."""
    with context.platform.transaction() as conn:
        record_evaluations(conn, scored.rows)
        remove_evaluations(conn, scored.gone)


def count_in(data: EvaluationSet, intervals: Intervals, *, deleted: bool) -> list[int]:
    """How many of the samples of each interval are deleted, or how many are not."""
    return _counts(data.times(deleted=deleted), intervals)


def _stands(cell: EvaluationRow | None, place: Place) -> bool:
    return cell is not None and (cell.address, cell.n_deleted) == (place.address, place.n_deleted)


def _places(
    context: TriggerContext, model: ModelRow, data: EvaluationSet, subsets: Mapping[str, Predictions], intervals: Intervals
) -> list[Place]:
    spec = context.spec.evaluation
    contents = {batch.ordinal: batch.content_checksum for batch in data.view.batches}
    # Weights are not all: how samples are read and how many threads compute decide bits of what is predicted.
    name = predictor_id(model.hash, context.spec.training)
    predictor = json.dumps([name, context.run.spec["training"], context.run.threads], sort_keys=True)
    settings = [spec.min_samples, spec.confidence.level, spec.confidence.resamples]
    codes = {metric: metric_code(metric) for metric in spec.metrics}
    deleted = count_in(data, intervals, deleted=True)
    found = []
    for subset, predictions in subsets.items():
        versions = data_versions(predictions, intervals, data.view.row.name, contents)
        counts = _counts(predictions.times, intervals)
        for i, (version, n_samples, n_deleted) in enumerate(zip(versions, counts, deleted, strict=True)):
            if subset == ALL or n_samples:
                for metric in spec.metrics:
                    address = cell_address(predictor, intervals[i], metric, version, settings, code=codes[metric])
                    found.append(Place(subset, i, metric, address, n_samples, n_deleted))
    return found


def _computed(
    context: TriggerContext, predictions: Predictions, intervals: Intervals, places: Sequence[Place]
) -> Mapping[str, CellResult]:
    """The results of some cells by address; intervals that lack the same metrics are scored together."""
    lacking: dict[int, list[Place]] = {}
    for place in places:
        lacking.setdefault(place.interval, []).append(place)
    together: dict[tuple[str, ...], list[int]] = {}
    for number, found in lacking.items():
        together.setdefault(tuple(place.metric for place in found), []).append(number)
    spec, results = context.spec.evaluation, {}
    for metrics, numbers in together.items():
        chosen = [intervals[number] for number in numbers]
        scored = score_intervals(predictions, chosen, metrics, min_samples=spec.min_samples)
        level, resamples = spec.confidence.level, spec.confidence.resamples
        sure = cell_confidence(predictions, chosen, scored, level=level, resamples=resamples)
        for number, cell, ends in zip(numbers, scored, sure, strict=True):
            for place in lacking[number]:
                score, end = cell[place.metric], ends.get(place.metric)
                low, high = (None, None) if end is None else (end.low, end.high)
                results[place.address] = CellResult(score.value, score.reason, low, high)
    return results


def _counts(times: npt.NDArray[np.datetime64], intervals: Intervals) -> list[int]:
    """How many of the times lie in each interval."""
    times = np.sort(times)
    starts, ends = (np.array([getattr(i, side) for i in intervals], dtype="datetime64[us]") for side in ("start", "end"))
    return [int(n) for n in np.searchsorted(times, ends) - np.searchsorted(times, starts)]


def _key(intervals: Intervals, place: Place) -> CellKey:
    interval = intervals[place.interval]
    return as_timestamp(interval.start), as_timestamp(interval.end), place.metric, place.subset


def _row(
    context: TriggerContext, model: ModelRow, data: EvaluationSet, intervals: Intervals, place: Place, result: CellResult
) -> dict[str, Any]:
    start, end, metric, subset = _key(intervals, place)
    return {
        "trigger_id": context.trigger.id,
        "interval_start": start,
        "interval_end": end,
        "metric": metric,
        "n_samples": place.n_samples,
        "n_deleted": place.n_deleted,
        "value": result.value,
        "undefined": result.undefined,
        "seen_in_training": data.trained_on and start <= model.train_end and end > model.train_start,
        "address": place.address,
        "subset": subset,
        "low": result.low,
        "high": result.high,
    }
