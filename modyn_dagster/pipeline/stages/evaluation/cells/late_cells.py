"""Cells of models on samples whose labels arrive later: each score as known, and final with all labels so far.

A score as known sees the labels that had arrived with the batch that closed its interval, or with the batch of the model's
trigger where that came later. With ``maturity`` it waits for the batch at which every sample of the interval has this age. No
label that arrives afterwards changes it. The final score is computed again when labels arrive.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from modyn_dagster.catalog.results.evaluations import CellResult, EvaluationRow
from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.data.label_files import is_labelled
from modyn_dagster.evaluation.intervals.generation import Interval
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.keys import ordinals_of
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
from modyn_dagster.pipeline.stages.evaluation.evaluation_matrix import closed_model_intervals, known_positions
from modyn_dagster.pipeline.stages.evaluation.stored_predictions import StoredPredictions
from modyn_dagster.spec.base import timedelta_of
from modyn_dagster.spec.tasks.metrics import estimated_metric

#: Scores to compute: those of metrics that are measured with labels, those of estimates without them, or all.
Kind = Literal["all", "measured", "estimated"]


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
    known = _known_scores(scoring, newest, intervals)
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


def _known_scores(scoring: "_Scoring", newest: Predictions, intervals: Intervals) -> dict[CellKey, _Score]:
    """Scores as known, by cell. Estimates read no label of the samples, so they do not wait for these to mature."""
    maturity, estimated = scoring.context.spec.evaluation.maturity, estimated_metrics(scoring.context)
    passes: list[tuple[np.timedelta64 | None, Kind]] = [(None, "all")]
    if maturity is not None:
        passes = [(timedelta_of(maturity), "measured")]
        if estimated:
            passes.append((None, "estimated"))
    known: dict[CellKey, _Score] = {}
    for age, kind in passes:
        positions, waits = known_positions(scoring.context, scoring.data, intervals, age)
        for position, waiting in sorted(set(zip(positions.tolist(), waits.tolist(), strict=True))):
            chosen = [intervals[i] for i in np.flatnonzero((positions == position) & (waits == waiting))]
            labelled = scoring.data.relabelled(_within(newest, chosen), position)
            known |= scoring.scores(labelled, chosen, position, kind, waits=waiting)
    return known


class _Scoring:
    """Scores of one model, each computed once per address.

    Attributes:
        context: of the model's trigger.
        data: the evaluation samples.
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
        self.context, self._model, self.data, self._contents = context, model, data, contents
        self._results, self._known_results = results, known_results
        self.intervals: dict[CellKey, Intervals] = {}

    def scores(
        self, predictions: Predictions, intervals: Intervals, position: int | None, kind: Kind = "all", *, waits: bool = False
    ) -> dict[CellKey, _Score]:
        """Score predictions, with the labels that they have, on intervals; calibrate estimates on labels as of a position.

        Scores that wait for their samples to mature are undefined, and say so.
        """
        context = replace(self.context, view=self.context.view.labelled_as_of(position))
        calibration = calibration_of(context) if estimated_metrics(context) and kind != "measured" else None
        subsets = subsets_of(context, self.data, predictions)
        plans = cell_plans(context, self._model, self.data, subsets, intervals, self._contents, calibration, waits=waits)
        plans = [plan for plan in plans if kind != "estimated" or not _measures(plan)]
        self._results |= self._known_results([plan.address for plan in plans if plan.address not in self._results])
        if calibration is not None:
            wanted = wanted_estimates([plan for plan in plans if plan.address not in self._results])
            self._results |= estimated_cells(context, self._model, calibration, subsets, intervals, wanted)
        scores = {}
        for subset, members in subsets.items():
            own = [plan for plan in plans if plan.subset == subset]
            if waits:
                self._results |= {plan.address: self._immature(plan, members, intervals) for plan in own}
            missing = [plan for plan in own if plan.address not in self._results]
            self._results |= computed_results(context, members, intervals, missing)
            labelled = count_times(members.times[is_labelled(members.truth)], intervals)
            for plan in own:
                score = self._checked(plan, labelled[plan.interval], waits=waits)
                key = cell_key(intervals, plan)
                scores[key], self.intervals[key] = score, intervals
        return scores

    def _immature(self, plan: CellPlan, members: Predictions, intervals: Intervals) -> CellResult:
        maturity, interval = str(self.context.spec.evaluation.maturity), intervals[plan.interval]
        inside = (members.times >= interval.start) & (members.times < interval.end)
        young = np.count_nonzero(~self.data.view.are_older(members.keys[inside], timedelta_of(maturity)))
        return CellResult(None, f"{young} of {plan.n_samples} samples are younger than maturity {maturity}", None, None)

    def _checked(self, plan: CellPlan, n_labelled: int, *, waits: bool) -> _Score:
        least, result = self.context.spec.evaluation.min_coverage, self._results[plan.address]
        if not waits and n_labelled < least * plan.n_samples and _measures(plan):
            reason = f"{n_labelled} of {plan.n_samples} samples have a label, below min_coverage {least:g}"
            result = CellResult(None, reason, None, None)
        return _Score(plan, result, n_labelled)


def _measures(plan: CellPlan) -> bool:
    return estimated_metric(plan.metric) is None


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
