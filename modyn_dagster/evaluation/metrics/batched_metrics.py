"""Metrics of many slices of one model at once, to the bit what each slice alone gives.

Counts come from running totals, sums of floats from one call that sums every slice by itself, and the order of all samples is
walked along once. What cannot be had this way is left to the metric of a single slice.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from fastpath.arrays.ordered_pairs import ordered_pairs
from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
#: Judged samples, starts and stops of slices that are not empty, to a value per slice (NaN: there is none); None: not this way.
BatchedMetric = Callable[[EvaluationSamples, Int64, Int64], Float64 | None]


def accuracy(judged: EvaluationSamples, starts: Int64, stops: Int64) -> Float64:
    """Share of samples whose class has the largest output."""
    before = judged.right(1)
    return np.asarray((before[stops] - before[starts]) / (stops - starts))


def log_loss(judged: EvaluationSamples, starts: Int64, stops: Int64) -> Float64:
    """Mean of ``-log p(class)``."""
    return sums(judged.losses, starts, stops) / (stops - starts)


def brier(judged: EvaluationSamples, starts: Int64, stops: Int64) -> Float64:
    """Mean squared distance of the probabilities from the truth."""
    return sums(judged.squares, starts, stops) / (stops - starts)


def binary_f1(judged: EvaluationSamples, starts: Int64, stops: Int64) -> Float64 | None:
    """Of class 1 of two; NaN where it neither occurs nor is predicted."""
    if judged.n_classes != 2 or judged.beyond[-1]:
        return None
    hits, seen = judged.hits_of_one, judged.seen_of_one
    with np.errstate(invalid="ignore"):
        return np.asarray(2 * (hits[stops] - hits[starts]) / (seen[stops] - seen[starts]))


def binary_roc_auc(judged: EvaluationSamples, starts: Int64, stops: Int64) -> Float64 | None:
    """Of class 1 against 0; NaN where all samples are of one class. Only for slices that follow each other in both ends."""
    if judged.n_classes != 2 or judged.beyond[-1] or (np.diff(starts) < 0).any() or (np.diff(stops) < 0).any():
        return None
    order, ranks = judged.ranking(1)
    found = ordered_pairs(judged.truth == 1, order, ranks, starts, stops)
    with np.errstate(invalid="ignore"):
        return np.asarray(found.doubled / (2 * found.positives * found.negatives))


#: By name of the metric.
BATCHED_METRICS: Final[dict[str, BatchedMetric]] = {
    "accuracy": accuracy,
    "log_loss": log_loss,
    "brier": brier,
    "f1": binary_f1,
    "roc_auc": binary_roc_auc,
}


def batched_values(metric: str, judged: EvaluationSamples, parts: Sequence[slice], usable: Sequence[bool]) -> dict[int, float]:
    """Values of the usable slices by their number, as far as they can be had together; none of them is NaN."""
    if metric not in BATCHED_METRICS or judged.truth.dtype.kind == "f":
        return {}
    numbers = [number for number, good in enumerate(usable) if good]
    if metric in ("log_loss", "brier"):
        beyond = judged.beyond
        numbers = [number for number in numbers if beyond[parts[number].stop] == beyond[parts[number].start]]
    if not numbers:
        return {}
    starts, stops = (np.array([getattr(parts[n], side) for n in numbers], dtype=np.int64) for side in ("start", "stop"))
    found = BATCHED_METRICS[metric](judged, starts, stops)
    if found is None:
        return {}
    return {number: value for number, value in zip(numbers, found.tolist(), strict=True) if np.isfinite(value)}


def sums(values: Float64, starts: Int64, stops: Int64) -> Float64:
    """Sum of every slice, none of them empty; each has the same bits whatever the others are."""
    edges = np.stack([starts, stops], axis=1).ravel()
    if stops.max() < len(values):
        return np.add.reduceat(values, edges)[::2]
    # An edge must be a place: the last slices end behind the last one.
    return np.add.reduceat(np.append(values, 0.0), edges)[::2]
