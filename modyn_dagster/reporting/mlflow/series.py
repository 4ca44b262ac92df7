"""Metrics for MLflow as series of points: losses, scores by interval and slice, decisions, fill, and load of the processor.

Steps and timestamps of what belongs to the stream are sample time (``stream_time``), those of a training its steps and its clock.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from modyn_dagster.catalog.decisions import DecisionRow
from modyn_dagster.catalog.results.evaluations import EvaluationRow
from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.catalog.results.training_sets import FillPoint
from modyn_dagster.reporting.mlflow.stream_time import StreamTime, milliseconds
from modyn_dagster.reporting.scores import CompositeSeries, Interval
from modyn_dagster.values.digest import json_digest

#: Prefixes of the names of metrics that are series.
SERIES_PREFIXES: Final = ("training/", "evaluation/", "decision/", "selection/", "system/")
#: Decisions of a run that are shown, the first ones; the catalog has all.
MOST_DECISIONS: Final = 10_000
#: Points of a loss curve: sending them is most of the cost of tracking. The catalog has all.
MOST_LOSSES: Final = 250
#: Epochs whose load is shown.
MOST_LOADS: Final = 50


class Point(NamedTuple):
    """One value of a metric; ``timestamp`` in milliseconds since 1970."""

    step: int
    timestamp: int
    value: float


Series = Mapping[str, Sequence[Point]]
T = TypeVar("T")


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


def system_series(model: ModelRow) -> dict[str, list[Point]]:
    """Processor time and memory of the training process at the end of each epoch, evenly thinned; empty for older models.

    100 % is one core. MLflow shows metrics of these names as system metrics, over the clock.
    """
    series: dict[str, list[Point]] = {}
    epochs = [epoch for epoch in model.training.get("epochs", ()) if "cpu_seconds" in epoch]
    seconds = [sum(epoch["seconds"].values()) for epoch in epochs]
    for number, epoch in _thin([*enumerate(epochs, start=1)], MOST_LOADS):
        at = milliseconds(model.created_at) - round(1000 * sum(seconds[number:]))
        values = {"memory_megabytes": epoch["memory_bytes"] / 1e6}
        if seconds[number - 1] > 0:
            values["cpu_utilization_percentage"] = 100 * epoch["cpu_seconds"] / seconds[number - 1]
        for name, value in values.items():
            series.setdefault(f"system/process_{name}", []).append(Point(number, at, value))
    return series


def interval_series(cells: Sequence[EvaluationRow], time: StreamTime) -> dict[str, list[Point]]:
    """Points of every metric of one model, one per cell with a value."""
    series: dict[str, list[Point]] = {}
    for cell in cells:
        point = interval_point(time, (cell.interval_start, cell.interval_end), cell.value)
        if point is not None:
            series.setdefault(f"evaluation/{cell.metric}", []).append(point)
    return series


def interval_point(time: StreamTime, interval: Interval, value: float | None) -> Point | None:
    """Point of an interval at its start; None without a value."""
    # MLflow replaces infinities by other numbers.
    if value is None or not math.isfinite(value):
        return None
    return Point(time.step(interval[0]), time.timestamp(interval[0]), value)


def decision_series(decisions: Sequence[DecisionRow]) -> dict[str, list[Point]]:
    """Scores and thresholds of the decisions of a run at their sample times."""
    time = StreamTime.beginning(decisions[0].time if decisions else None)
    series: dict[str, list[Point]] = {}
    for row in decisions[:MOST_DECISIONS]:
        for name, value in (("score", row.score), ("threshold", row.threshold)):
            if value is not None and math.isfinite(value):
                series.setdefault(f"decision/{name}", []).append(Point(time.step(row.time), time.timestamp(row.time), value))
    return {name: list(dict.fromkeys(points)) for name, points in series.items()}


def fill_series(fills: Sequence[FillPoint]) -> dict[str, list[Point]]:
    """Fill of the time-biased sample of a run after each batch, at its sample time."""
    time = StreamTime.beginning(fills[0].time if fills else None)
    shown = [Point(time.step(fill.time), time.timestamp(fill.time), fill.fill) for fill in fills[:MOST_DECISIONS]]
    return {"selection/fill": list(dict.fromkeys(shown))} if shown else {}


def _thin(curve: Sequence[tuple[int, T]], most: int = MOST_LOSSES) -> list[tuple[int, T]]:
    """At most so many points at equal distances, including the first and the last."""
    n, kept = len(curve), min(len(curve), most)
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


def slice_series(cells: Sequence[EvaluationRow], time: StreamTime) -> dict[str, list[Point]]:
    """Points of every metric of one model on every slice, as ``evaluation/<metric> by <attribute>/<value>``."""
    shown = set(sorted({cell.subset for cell in cells} - {""})[:MOST_SLICES])
    series: dict[str, list[Point]] = {}
    for cell in cells:
        point = interval_point(time, (cell.interval_start, cell.interval_end), cell.value) if cell.subset in shown else None
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


def composite_points(series: Mapping[str, CompositeSeries], time: StreamTime, *, ended: bool) -> dict[str, list[Point]]:
    """Scores by metric of the composite models; of the currently trained one after the run.

    Before the end the newest model stands for itself, and its points would belong to another model after the next trigger.
    """
    points: dict[str, list[Point]] = {}
    for metric, composites in series.items():
        shown_after = composites.trained if ended else ()
        shown = {"active": composites.active, "trained": shown_after, "served": composites.served, "own": composites.own}
        for name, scores in shown.items():
            candidates = [interval_point(time, score.interval, score.value) for score in scores]
            if defined := [point for point in candidates if point is not None]:
                points[f"evaluation/{name} {metric}"] = defined
            late = [(score.interval, score.late) for score in scores if score.late is not None]
            for kind, values in (
                (f"{metric} final", [(interval, each.final) for interval, each in late]),
                ("label coverage", [(interval, each.coverage) for interval, each in late]),
            ):
                found = [interval_point(time, interval, value) for interval, value in values]
                if defined := [point for point in found if point is not None]:
                    points[f"evaluation/{name} {kind}"] = defined
    return points
