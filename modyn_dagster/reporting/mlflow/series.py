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
from modyn_dagster.reporting.scores import CompositeSeries, Interval
from modyn_dagster.values.digest import json_digest

#: Prefixes of the names of metrics that are series.
SERIES_PREFIXES: Final = ("training/", "evaluation/", "decision/", "selection/")
#: Decisions of a run that are shown, the first ones; the catalog has all.
MOST_DECISIONS: Final = 10_000
#: Points of a loss curve: sending them is most of the cost of tracking. The catalog has all.
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
    """Loss curve by step, and mean of every epoch, counted from 1; evenly thinned."""
    at = milliseconds(model.created_at)
    return {
        "training/loss": [Point(int(step), at, float(loss)) for step, loss in _thin(model.curve)],
        "training/epoch_loss": [Point(epoch, at, float(loss)) for epoch, loss in _thin([*enumerate(model.losses, start=1)])],
    }


def epoch_series(model: ModelRow) -> dict[str, list[Point]]:
    """Samples per second, seconds per stage and calibration loss of every epoch, counted from 1; evenly thinned."""
    at = milliseconds(model.created_at)
    epochs = list(model.training.get("epochs", ()))
    curves: dict[str, list[tuple[int, float]]] = {}
    for number, epoch in enumerate(epochs, start=1):
        total = sum(epoch["seconds"].values())
        if total > 0:
            curves.setdefault("training/samples_per_second", []).append((number, epoch["n_samples"] / total))
        for stage, seconds in epoch["seconds"].items():
            curves.setdefault(f"training/seconds_{stage}", []).append((number, seconds))
    for number, loss in enumerate(model.training.get("calibration_losses", ()), start=1):
        curves.setdefault("training/calibration_loss", []).append((number, loss))
    return {
        name: [Point(number, at, float(value)) for number, value in _thin(values) if math.isfinite(value)]
        for name, values in curves.items()
    }


def interval_series(cells: Sequence[EvaluationRow], intervals: Sequence[Interval]) -> dict[str, list[Point]]:
    """Points of every metric of one model, one per cell with a value. ``intervals`` are all of the run, in order of time."""
    series: dict[str, list[Point]] = {}
    for cell in cells:
        point = interval_point(intervals, (cell.interval_start, cell.interval_end), cell.value)
        if point is not None:
            series.setdefault(f"evaluation/{cell.metric}", []).append(point)
    return series


def interval_point(intervals: Sequence[Interval], interval: Interval, value: float | None) -> Point | None:
    """Point of an interval: its index among all of the run is the step, its start the timestamp; None without a value."""
    # MLflow replaces infinities by other numbers.
    if value is None or not math.isfinite(value):
        return None
    timestamp = milliseconds(interval[0]) - milliseconds(time_zero(intervals))
    return Point(bisect_left(intervals, interval), timestamp, value)


def decision_series(decisions: Sequence[DecisionRow]) -> dict[str, list[Point]]:
    """Scores and thresholds of the decisions of a run; the step is the index of the decision.

    Timestamps are sample times, counted from 1970, or from the first decision if that is earlier.
    """
    zero = milliseconds(min([_EPOCH, *(row.time for row in decisions[:1])]))
    series: dict[str, list[Point]] = {}
    for step, row in enumerate(decisions[:MOST_DECISIONS]):
        for name, value in (("score", row.score), ("threshold", row.threshold)):
            if value is not None and math.isfinite(value):
                series.setdefault(f"decision/{name}", []).append(Point(step, milliseconds(row.time) - zero, value))
    return series


def fill_series(fills: Sequence[FillPoint]) -> dict[str, list[Point]]:
    """Fill of the time-biased sample of a run after each batch; timestamps as in ``decision_series``."""
    zero = milliseconds(min([_EPOCH, *(point.time for point in fills[:1])]))
    shown = [Point(step, milliseconds(fill.time) - zero, fill.fill) for step, fill in enumerate(fills[:MOST_DECISIONS])]
    return {"selection/fill": shown} if shown else {}


def interval_tags(intervals: Sequence[Interval]) -> dict[str, str]:
    """Number and extent of the intervals, and the moment of timestamp 0."""
    if not intervals:
        return {}
    return {
        "modyn/intervals": f"{len(intervals)} from {utc_text(intervals[0][0])} to {utc_text(intervals[-1][1])}",
        "modyn/time_zero": utc_text(time_zero(intervals)),
    }


def interval_table(intervals: Sequence[Interval]) -> list[dict[str, Any]]:
    """Interval of each step of ``evaluation/…``."""
    return [{"step": i, "start": utc_text(start), "end": utc_text(end)} for i, (start, end) in enumerate(intervals)]


def time_zero(intervals: Sequence[Interval]) -> datetime:
    """Moment of timestamp 0 of the interval metrics: 1970, or the start of the first interval if that is earlier."""
    return min([_EPOCH, *(start for start, _ in intervals[:1])])


def milliseconds(moment: datetime) -> int:
    """Milliseconds since 1970, rounded down; negative before."""
    return (moment - _EPOCH) // _MILLISECOND


def utc_text(moment: datetime) -> str:
    """Moment in UTC as ISO 8601."""
    return moment.astimezone(UTC).isoformat()


def _thin(curve: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most ``MOST_LOSSES`` points at equal distances, including the first and the last."""
    n, kept = len(curve), min(len(curve), MOST_LOSSES)
    return [curve[i * (n - 1) // max(1, kept - 1)] for i in range(kept)]


def digest_of(content: object) -> str:
    """Equal content (plain JSON values), equal digest."""
    return json_digest(content)


#: Slices of one model that are shown, in order of their names; the catalog has all.
MOST_SLICES: Final = 100
#: Characters that MLflow stores of a name.
MOST_IN_NAME: Final = 250
#: MLflow allows more characters, but not in names that look like paths.
_REFUSED_IN_NAME: Final = re.compile(r"[^\w\- ]", re.ASCII)


def mlflow_name(text: str) -> str:
    """Text with an underscore for each character that MLflow may refuse in a name."""
    return _REFUSED_IN_NAME.sub("_", text)


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
    """Name of a metric on a slice ``attribute=value``; a digest distinguishes names that MLflow forces to change.

    >>> slice_name("accuracy", "school=MIT")
    'evaluation/accuracy by school/MIT'
    """
    attribute, _, value = subset.partition("=")
    clean = [mlflow_name(text).strip() or "_" for text in (attribute, value)]
    name = f"evaluation/{metric} by {'/'.join(clean)}"
    if clean == [attribute, value] and len(name) <= MOST_IN_NAME:
        return name
    mark = f"-{digest_of(subset)[:8]}"
    return name[: MOST_IN_NAME - len(mark)] + mark


def slice_tags(cells: Sequence[EvaluationRow]) -> dict[str, str]:
    """Number of slices that are shown, of all slices."""
    n = len({cell.subset for cell in cells} - {""})
    return {"modyn/slices": f"{min(n, MOST_SLICES)} of {n}"} if n else {}


def composite_points(
    series: Mapping[str, CompositeSeries], intervals: Sequence[Interval], *, ended: bool
) -> dict[str, list[Point]]:
    """Scores by metric of the currently active model and, after the end of the run, of the currently trained model.

    Before the end the newest model stands for itself, and its points would belong to another model after the next trigger.
    """
    points: dict[str, list[Point]] = {}
    for metric, composites in series.items():
        for name, scores in (("active", composites.active), ("trained", composites.trained if ended else ())):
            candidates = [interval_point(intervals, score.interval, score.value) for score in scores]
            if defined := [point for point in candidates if point is not None]:
                points[f"evaluation/{name} {metric}"] = defined
    return points
