"""Evaluation of models: intervals, predictions, metrics, composite models and scores, without importing torch."""

from modyn_dagster.evaluation.cells import score_intervals, score_slices
from modyn_dagster.evaluation.composite.pareto import feasible_set, pareto_front
from modyn_dagster.evaluation.composite.regret import Regret, Schedule, best_schedule, regret
from modyn_dagster.evaluation.composite.scores import (
    comparable_intervals,
    composite_scores,
    currently_active,
    currently_served,
    currently_trained,
    expected_shortfall,
    forgetting,
    past_intervals,
    pipeline_score,
    retention,
)
from modyn_dagster.evaluation.intervals.generation import Interval, anchor_of, closed_intervals, generate_intervals
from modyn_dagster.evaluation.metrics.confidence import ConfidenceInterval, bootstrap, confidence_interval, wilson
from modyn_dagster.evaluation.metrics.registry import METRICS, Score, check_metrics, find_metric, score
from modyn_dagster.evaluation.predictions.blocks import BLOCK, BatchRange, Block, fixed_blocks
from modyn_dagster.evaluation.predictions.files import WrittenPredictions, read_predictions, write_predictions
from modyn_dagster.evaluation.predictions.forward import Predictions, predict_range

__all__ = [
    "BLOCK",
    "METRICS",
    "BatchRange",
    "Block",
    "ConfidenceInterval",
    "Interval",
    "Predictions",
    "Regret",
    "Schedule",
    "Score",
    "WrittenPredictions",
    "anchor_of",
    "best_schedule",
    "bootstrap",
    "check_metrics",
    "closed_intervals",
    "comparable_intervals",
    "composite_scores",
    "confidence_interval",
    "currently_active",
    "currently_served",
    "currently_trained",
    "expected_shortfall",
    "feasible_set",
    "find_metric",
    "fixed_blocks",
    "forgetting",
    "generate_intervals",
    "pareto_front",
    "past_intervals",
    "pipeline_score",
    "predict_range",
    "read_predictions",
    "regret",
    "retention",
    "score",
    "score_intervals",
    "score_slices",
    "wilson",
    "write_predictions",
]
