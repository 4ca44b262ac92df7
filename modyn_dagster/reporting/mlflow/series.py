"""Metrics for MLflow as series of points: losses, scores by interval and slice, decisions, fill.

The step of an interval metric is the position of the interval in the run's list of intervals. MLflow refuses times before
1970: where the first interval begins earlier, timestamps count from its start (tag ``modyn/time_zero``).
"""

import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from modyn_dagster.catalog.decisions import DecisionRow
from modyn_dagster.catalog.results.evaluations import EvaluationRow
from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.catalog.results.training_sets import FillPoint
from modyn_dagster.digest import json_digest
from modyn_dagster.reporting.scores import CompositeSeries, Interval

#: Names of metrics that are series begin with one of these.
SERIES_PREFIXES: Final = ("training/", "evaluation/", "decision/", "selection/")
#: Decisions of a run that are shown, the first ones; the catalog has all of them.
MOST_DECISIONS: Final = 10_000
#: Of a loss curve. Sending its points is most of what tracking costs; the catalog has all of them.
MOST_LOSSES: Final = 250
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class Point(NamedTuple):
    """One value of a metric; ``timestamp`` in milliseconds since 1970."""

    step: int
    timestamp: int
    value: float


Series = Mapping[str, Sequence[Point]]


def loss_series(model: ModelRow) -> dict[str, list[Point]]:
    """The loss curve by step, and the mean of every epoch, counted from 1; evenly thinned to what a screen can show."""
    at = milliseconds(model.created_at)
    return {
        "training/loss": [Point(int(step), at, float(loss)) for step, loss in _thinned(model.curve)],
        "training/epoch_loss": [Point(epoch, at, float(loss)) for epoch, loss in _thinned([*enumerate(model.losses, start=1)])],
    }


def epoch_series(model: ModelRow) -> dict[str, list[Point]]:
    """Of every epoch, counted from 1 and evenly thinned: samples trained on a second, seconds per stage, calibration loss."""
    at = milliseconds(model.created_at)
    epochs = list(model.training.get("epochs", ()))
    found: dict[str, list[tuple[int, float]]] = {}
    for number, epoch in enumerate(epochs, start=1):
        total = sum(epoch["seconds"].values())
        if total > 0:
            found.setdefault("training/samples_per_second", []).append((number, epoch["n_samples"] / total))
        for stage, seconds in epoch["seconds"].items():
            found.setdefault(f"training/seconds_{stage}", []).append((number, seconds))
    for number, loss in enumerate(model.training.get("calibration_losses", ()), start=1):
        found.setdefault("training/calibration_loss", []).append((number, loss))
    return {
        name: [Point(number, at, float(value)) for number, value in _thinned(values) if math.isfinite(value)]
        for name, values in found.items()
    }


def interval_series(cells: Sequence[EvaluationRow], intervals: Sequence[Interval]) -> dict[str, list[Point]]:
    """Points of every metric of one model; cells without a value have none. ``intervals`` are all of the run's, in order."""
    series: dict[str, list[Point]] = {}
    for cell in cells:
        point = interval_point(intervals, (cell.interval_start, cell.interval_end), cell.value)
        if point is not None:
            series.setdefault(f"evaluation/{cell.metric}", []).append(point)
    return series


def interval_point(intervals: Sequence[Interval], interval: Interval, value: float | None) -> Point | None:
    """A value at an interval: its place among all of the run's in order is the step, its start the time; None without a value."""
    # MLflow stores other numbers in place of infinities.
    if value is None or not math.isfinite(value):
        return None
    timestamp = milliseconds(interval[0]) - milliseconds(time_zero(intervals))
    return Point(bisect_left(intervals, interval), timestamp, value)


def decision_series(decisions: Sequence[DecisionRow]) -> dict[str, list[Point]]:
    """Scores and thresholds that decisions of a run were taken from; the step is the decision's number among them, from 0.

    Timestamps are sample times, from 1970 on or, where the first decision lies before it, from there.
    """
    zero = milliseconds(min([_EPOCH, *(row.time for row in decisions[:1])]))
    series: dict[str, list[Point]] = {}
    for step, row in enumerate(decisions[:MOST_DECISIONS]):
        for name, value in (("score", row.score), ("threshold", row.threshold)):
            if value is not None and math.isfinite(value):
                series.setdefault(f"decision/{name}", []).append(Point(step, milliseconds(row.time) - zero, value))
    return series


def fill_series(fills: Sequence[FillPoint]) -> dict[str, list[Point]]:
    """How full the time-biased sample of a run was after each batch; timestamps as with decisions."""
    zero = milliseconds(min([_EPOCH, *(point.time for point in fills[:1])]))
    shown = [Point(step, milliseconds(each.time) - zero, each.fill) for step, each in enumerate(fills[:MOST_DECISIONS])]
    return {"selection/fill": shown} if shown else {}


def interval_tags(intervals: Sequence[Interval]) -> dict[str, str]:
    """How many intervals there are, from when to when, and which moment timestamp 0 stands for."""
    if not intervals:
        return {}
    return {
        "modyn/intervals": f"{len(intervals)} from {utc_text(intervals[0][0])} to {utc_text(intervals[-1][1])}",
        "modyn/time_zero": utc_text(time_zero(intervals)),
    }


def interval_table(intervals: Sequence[Interval]) -> list[dict[str, Any]]:
    """Which interval each step of ``evaluation/…`` stands for."""
    return [{"step": i, "start": utc_text(start), "end": utc_text(end)} for i, (start, end) in enumerate(intervals)]


def time_zero(intervals: Sequence[Interval]) -> datetime:
    """The moment that timestamp 0 of the interval metrics stands for: 1970, or the first interval's start before it."""
    return min([_EPOCH, *(start for start, _ in intervals[:1])])


def milliseconds(moment: datetime) -> int:
    """Since 1970, rounded down; negative before."""
    return (moment - _EPOCH) // _MILLISECOND


def utc_text(moment: datetime) -> str:
    """ISO 8601 in UTC."""
    return moment.astimezone(UTC).isoformat()


def _thinned(curve: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most ``MOST_LOSSES`` points at equal distances, the first and the last among them."""
    n, kept = len(curve), min(len(curve), MOST_LOSSES)
    return [curve[i * (n - 1) // max(1, kept - 1)] for i in range(kept)]


def digest_of(content: object) -> str:
    """Equal content (plain JSON values), equal digest."""
    return json_digest(content)


#: Slices of one model that are shown, by name; the catalog has all of them.
MOST_SLICES: Final = 100
_MOST_IN_NAME: Final = 250
_REFUSED_IN_NAME: Final = re.compile(r"[^\w\- ]", re.ASCII)


def slice_series(cells: Sequence[EvaluationRow], intervals: Sequence[Interval]) -> dict[str, list[Point]]:
    """Points of every metric of one model on every slice, as ``evaluation/<metric> by <attribute>/<value>``."""
    shown = set(sorted({cell.subset for cell in cells} - {""})[:MOST_SLICES])
    series: dict[str, list[Point]] = {}
    for cell in cells:
        point = interval_point(intervals, (cell.interval_start, cell.interval_end), cell.value) if cell.subset in shown else None
        if point is not None:
            series.setdefault(slice_name(cell.metric, cell.subset), []).append(point)
    return series


def slice_name(metric: str, subset: str) -> str:
    """The name of a metric on a slice ``attribute=value``; what MLflow refuses is left out, and a digest tells it apart.

    >>> slice_name("accuracy", "school=MIT")
    'evaluation/accuracy by school/MIT'
    """
    attribute, _, value = subset.partition("=")
    clean = [_REFUSED_IN_NAME.sub("_", text).strip() or "_" for text in (attribute, value)]
    name = f"evaluation/{metric} by {'/'.join(clean)}"
    if clean == [attribute, value] and len(name) <= _MOST_IN_NAME:
        return name
    mark = f"-{digest_of(subset)[:8]}"
    return name[: _MOST_IN_NAME - len(mark)] + mark


def slice_tags(cells: Sequence[EvaluationRow]) -> dict[str, str]:
    """How many slices there are and are shown."""
    n = len({cell.subset for cell in cells} - {""})
    return {"modyn/slices": f"{min(n, MOST_SLICES)} of {n}"} if n else {}


def composite_points(
    series: Mapping[str, CompositeSeries], intervals: Sequence[Interval], *, ended: bool
) -> dict[str, list[Point]]:
    """By metric the scores of the currently active model, and of the currently trained one once no model can follow.

    Before that the newest model stands for itself, and what it scored would be of another model after the next trigger.
    """
    found: dict[str, list[Point]] = {}
    for metric, each in series.items():
        for composite, scores in (("active", each.active), ("trained", each.trained if ended else ())):
            points = [interval_point(intervals, score.interval, score.value) for score in scores]
            if known := [point for point in points if point is not None]:
                found[f"evaluation/{composite} {metric}"] = known
    return found
