"""Cells of the evaluation matrix: the values of one model on every interval, their confidence intervals and their addresses.

A cell's address is a digest of everything its value follows from: cells with equal addresses have equal values.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from modyn_dagster.digest import framed_digest
from modyn_dagster.evaluation.intervals.generation import Interval
from modyn_dagster.evaluation.metrics.batched_metrics import batched_values
from modyn_dagster.evaluation.metrics.confidence import ConfidenceInterval, confidence_interval, is_share, wilson
from modyn_dagster.evaluation.metrics.evaluation_samples import EvaluationSamples
from modyn_dagster.evaluation.metrics.registry import Score, find_metric, is_labelled, score_slice
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.keys import ordinals_of

Cell = dict[str, Score]


def score_intervals(
    predictions: Predictions, intervals: Sequence[Interval], metrics: Sequence[str], *, min_samples: int = 1
) -> list[Cell]:
    """Every metric on every interval, in the order of the intervals.

    Samples count by their time, wherever in the stream they stand; within an interval they are taken in order of time, then
    key, so that equal predictions give equal bits, whatever other intervals are asked for. Times are ``datetime64``.
    """
    ordered = in_order(predictions)
    times, truth = ordered.times, ordered.truth
    labelled = is_labelled(truth)
    parts = _parts(times[labelled], intervals)
    n_all = [part.stop - part.start for part in _parts(times, intervals)]
    judged = (
        EvaluationSamples(ordered.outputs, truth)
        if labelled.all()
        else EvaluationSamples(ordered.outputs[labelled], truth[labelled])
    )
    n_unlabelled = [n - (part.stop - part.start) for part, n in zip(parts, n_all, strict=True)]
    usable = [
        part.stop - part.start >= max(1, min_samples) and judged.broken[part.stop] == judged.broken[part.start] for part in parts
    ]
    cells: list[Cell] = [{} for _ in parts]
    for metric in metrics:
        entry, together = find_metric(metric), batched_values(metric, judged, parts, usable)
        for number, (part, missing) in enumerate(zip(parts, n_unlabelled, strict=True)):
            cells[number][metric] = (
                Score(together[number], part.stop - part.start, None, missing)
                if number in together
                else score_slice(entry, judged, part, missing, min_samples=min_samples)
            )
    return cells


def cell_confidence(
    predictions: Predictions, intervals: Sequence[Interval], cells: Sequence[Cell], *, level: float, resamples: int
) -> list[dict[str, ConfidenceInterval]]:
    """The confidence interval of every defined score that has one; ``cells`` are those of the intervals, in the same order.

    Without ``resamples`` only shares have one. Equal samples give equal ends, in whatever order they come.
    """
    ordered, found = in_order(predictions), []
    for part, cell in zip(_parts(ordered.times, intervals), cells, strict=True):
        ends: dict[str, ConfidenceInterval | None] = {}
        for metric, score in cell.items():
            if score.value is None or not (resamples or is_share(metric)):
                continue
            if is_share(metric) and "_class_" not in metric:
                ends[metric] = wilson(round(score.value * score.n), score.n, level)
            else:
                outputs, truth = ordered.outputs[part], ordered.truth[part]
                ends[metric] = confidence_interval(metric, outputs, truth, level=level, resamples=resamples)
        found.append({metric: each for metric, each in ends.items() if each is not None})
    return found


def score_slices(
    predictions: Predictions,
    groups: npt.NDArray[Any],
    intervals: Sequence[Interval],
    metrics: Sequence[str],
    *,
    min_samples: int = 1,
) -> Mapping[Any, list[Cell]]:
    """The same apart for every value of an attribute, or of the label: ``groups`` names one per prediction, ``[n]``."""
    if len(groups) != len(predictions):
        raise ValueError(f"groups: {len(groups)} values for {len(predictions)} predictions")
    return {
        group: score_intervals(predictions.take(np.flatnonzero(groups == group)), intervals, metrics, min_samples=min_samples)
        for group in np.unique(groups).tolist()
    }


def in_order(predictions: Predictions) -> Predictions:
    """The same by time, then key; most streams already are."""
    keys, times = predictions.keys, predictions.times
    sorted_already = (times[1:] > times[:-1]) | ((times[1:] == times[:-1]) & (keys[1:] > keys[:-1]))
    return predictions if sorted_already.all() else predictions.take(np.lexsort((keys, times)))


def _parts(times: npt.NDArray[np.datetime64], intervals: Sequence[Interval]) -> list[slice]:
    starts = np.searchsorted(times, np.array([i.start for i in intervals], dtype="datetime64[us]"), side="left")
    ends = np.searchsorted(times, np.array([i.end for i in intervals], dtype="datetime64[us]"), side="left")
    return [slice(int(start), int(max(start, end))) for start, end in zip(starts, ends, strict=True)]


def data_versions(
    predictions: Predictions, intervals: Sequence[Interval], dataset: str, contents: Mapping[int, str | None]
) -> list[str]:
    """A digest of the samples that are judged in each interval: which they are, when they were and what is true of them.

    A sample more, a deleted one less or another label make another version; the order of the predictions does not, nor
    do the samples of other intervals.

    Args:
        predictions: of the samples; what a model said of them does not count.
        intervals: of ``datetime64`` times.
        dataset: whose keys they are; keys of two datasets may be equal.
        contents: by ordinal of the batch a digest of what was ingested with it.
    """
    ordered = in_order(predictions)
    keys, times, truth = ordered.keys, ordered.times, ordered.truth
    ordinals = ordinals_of(keys)
    starts, ends = (
        np.searchsorted(times, np.array([getattr(interval, side) for interval in intervals], dtype="datetime64[us]"))
        for side in ("start", "end")
    )
    versions = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        part = slice(start, max(start, end))
        batches = [f"{ordinal} {contents.get(ordinal)}" for ordinal in np.unique(ordinals[part]).tolist()]
        versions.append(_digest([dataset, *batches], keys[part], times[part].view(np.int64), truth[part]))
    return versions


def cell_address(
    model: str, interval: Interval, metric: str, data: str, settings: Sequence[object] = (), *, code: str = ""
) -> str:
    """The address of one cell: 32 hexadecimal digits, and behind a dot ``code`` where there is one.

    Args:
        model: names what predicts: a hash of its weights and of how they are used.
        interval: its ends; which model is active there does not matter.
        metric: a name of ``METRICS`` or an import path.
        data: a version of the samples.
        settings: what else the value follows from, for example how few samples are too few.
        code: what the metric does (``metric_code``); it can be read off the address (``code_of``).
    """
    found = _digest([model, str(interval.start), str(interval.end), metric, data, *map(repr, settings)])
    return f"{found}.{code}" if code else found


def code_of(address: str) -> str:
    """The code of the metric that a cell of this address was computed by; empty where it is none of one's own."""
    return address.partition(".")[2]


def _digest(texts: Sequence[str], *arrays: npt.NDArray[np.generic]) -> str:
    return framed_digest((text.encode() for text in texts), *arrays)
