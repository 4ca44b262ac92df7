"""Cells of models on samples whose labels arrive later: each score as known, and final with all labels so far.

A score as known sees the labels that had arrived with the batch that closed its interval, or with the batch of the model's
trigger where that came later. No label that arrives afterwards changes it. The final score is computed again when labels arrive.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.catalog.results.evaluations import CellResult, EvaluationRow
from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.data.label_files import is_labelled
from modyn_dagster.evaluation.intervals.generation import Interval
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.keys import ordinal_of, ordinals_of
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.stages.evaluation.cells.closed_intervals import (
    CellKey,
    KnownResults,
    ScoredCells,
    cell_key,
    cell_row,
    computed_results,
)
from modyn_dagster.pipeline.stages.evaluation.cells.estimates import calibration_of, estimated_cells
from modyn_dagster.pipeline.stages.evaluation.cells.plans import (
    ALL,
    CellPlan,
    Intervals,
    cell_plans,
    count_times,
    estimated_metrics,
    subsets_of,
    wanted_estimates,
)
from modyn_dagster.pipeline.stages.evaluation.evaluation_data import EvaluationSet
from modyn_dagster.pipeline.stages.evaluation.evaluation_matrix import closed_model_intervals
from modyn_dagster.pipeline.stages.evaluation.stored_predictions import StoredPredictions
from modyn_dagster.spec.evaluation import estimated_metric


@dataclass(frozen=True, slots=True)
class _Score:
    """Result of a planned cell, and the number of its samples with a label."""

    plan: CellPlan
    result: CellResult
    n_labelled: int


def score_late_cells(
    context: TriggerContext,
    model: ModelRow,
    data: EvaluationSet,
    stored: StoredPredictions | None,
    cells: Sequence[EvaluationRow],
    known_results: KnownResults,
    *,
    finished: bool,
) -> ScoredCells:
    """Score the cells of every closed interval as known and final; see ``score_closed_intervals`` for the arguments.

    A cell is written again when its final score, or the arrival that this is as of, has changed.
    """
    if stored is None:
        return ScoredCells()
    newest = data.evaluated(stored.predictions)
    intervals = closed_model_intervals(context, data, finished=finished)
    contents = stored.contents(data.view.batches_at(np.unique(ordinals_of(newest.keys)).tolist()))
    scoring = _Scoring(context, model, data, contents, _recorded_results(cells), known_results)
    final = scoring.scores(newest, intervals, data.newest_label_position)
    known: dict[CellKey, _Score] = {}
    positions = known_positions(context, data, intervals)
    for position in np.unique(positions).tolist():
        chosen = [intervals[i] for i in np.flatnonzero(positions == position)]
        known |= scoring.scores(data.relabelled(_within(newest, chosen), position), chosen, position)
    recorded = {(cell.interval_start, cell.interval_end, cell.metric, cell.subset): cell for cell in cells}
    arrival, rows = data.newest_label_position, []
    for key, score in final.items():
        values = _values(known[key], score, arrival)
        row = cell_row(context, model, data, scoring.intervals[key], known[key].plan, known[key].result) | values
        cell = recorded.get(key)
        if cell is None or any(getattr(cell, name) != row[name] for name in ("address", "n_deleted", *values)):
            rows.append(row)
    scored = {key[:2] for key in final}
    gone = [c.id for key, c in recorded.items() if c.subset != ALL and key[:2] in scored and key not in final]
    return ScoredCells(rows, gone)


def known_positions(context: TriggerContext, data: EvaluationSet, intervals: Intervals) -> npt.NDArray[np.int64]:
    """Positions in the sequence of arrivals that the scores of intervals are known at, ``int64[n]``.

    That of the first batch whose samples reach the end of the interval, of the newest one where none does (the run has finished);
    and no earlier than that of the batch at which the model's trigger was decided.
    """
    batches = data.view.batches
    arrivals = np.array([-1 if batch.arrival is None else batch.arrival for batch in batches], dtype=np.int64)
    last = data.view.columns.last
    reached = np.maximum.accumulate(np.where(np.isnat(last), np.datetime64(np.iinfo(np.int64).min + 1, "us"), last))
    ends = np.array([interval.end for interval in intervals], dtype="datetime64[us]")
    closing = np.minimum(np.searchsorted(reached, ends, side="left"), len(batches) - 1)
    decided = int(np.searchsorted([batch.ordinal for batch in batches], ordinal_of(context.trigger.point)))
    positions: npt.NDArray[np.int64] = np.maximum(arrivals[closing], arrivals[min(decided, len(batches) - 1)])
    return positions


class _Scoring:
    """Scores of one model, each computed once per address.

    Attributes:
        intervals: those that a cell was planned with, by its key.
    """

    def __init__(
        self,
        context: TriggerContext,
        model: ModelRow,
        data: EvaluationSet,
        contents: Mapping[int, str | None],
        results: dict[str, CellResult],
        known_results: KnownResults,
    ) -> None:
        self._context, self._model, self._data, self._contents = context, model, data, contents
        self._results, self._known_results = results, known_results
        self.intervals: dict[CellKey, Intervals] = {}

    def scores(self, predictions: Predictions, intervals: Intervals, position: int | None) -> dict[CellKey, _Score]:
        """Score predictions, with the labels that they have, on intervals; calibrate estimates on labels as of a position."""
        context = replace(self._context, view=self._context.view.labelled_as_of(position))
        calibration = calibration_of(context) if estimated_metrics(context) else None
        subsets = subsets_of(context, self._data, predictions)
        plans = cell_plans(context, self._model, self._data, subsets, intervals, self._contents, calibration)
        self._results |= self._known_results([plan.address for plan in plans if plan.address not in self._results])
        if calibration is not None:
            wanted = wanted_estimates([plan for plan in plans if plan.address not in self._results])
            self._results |= estimated_cells(context, self._model, calibration, subsets, intervals, wanted)
        scores = {}
        for subset, members in subsets.items():
            own = [plan for plan in plans if plan.subset == subset]
            missing = [plan for plan in own if plan.address not in self._results]
            self._results |= computed_results(context, members, intervals, missing)
            labelled = count_times(members.times[is_labelled(members.truth)], intervals)
            for plan in own:
                score = self._checked(plan, labelled[plan.interval])
                key = cell_key(intervals, plan)
                scores[key], self.intervals[key] = score, intervals
        return scores

    def _checked(self, plan: CellPlan, n_labelled: int) -> _Score:
        least, result = self._context.spec.evaluation.min_coverage, self._results[plan.address]
        if n_labelled < least * plan.n_samples and estimated_metric(plan.metric) is None:
            reason = f"{n_labelled} of {plan.n_samples} samples have a label, below min_coverage {least:g}"
            result = CellResult(None, reason, None, None)
        return _Score(plan, result, n_labelled)


def _recorded_results(cells: Sequence[EvaluationRow]) -> dict[str, CellResult]:
    """Results that the model's cells have already, by address."""
    results = {cell.address: CellResult(cell.value, cell.undefined, cell.low, cell.high) for cell in cells}
    return results | {
        cell.final_address: CellResult(cell.final_value, cell.final_undefined, cell.final_low, cell.final_high)
        for cell in cells
        if cell.final_address is not None
    }


def _within(predictions: Predictions, intervals: Sequence[Interval[np.datetime64]]) -> Predictions:
    """Predictions of samples in any of some intervals: only these get other labels."""
    inside = np.zeros(len(predictions), dtype=bool)
    for interval in intervals:
        inside |= (predictions.times >= interval.start) & (predictions.times < interval.end)
    return predictions.take(np.flatnonzero(inside))


def _values(known: _Score, final: _Score, arrival: int | None) -> dict[str, Any]:
    """Columns of a cell that only labels which arrive later need."""
    return {
        "n_labelled": known.n_labelled,
        "final_value": final.result.value,
        "final_undefined": final.result.undefined,
        "final_low": final.result.low,
        "final_high": final.result.high,
        "final_labelled": final.n_labelled,
        "final_address": final.plan.address,
        "final_arrival": arrival,
    }
