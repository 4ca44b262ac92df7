"""Scores for MLflow as series over the intervals: of slices of a model's samples, and of the composite models of a run."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from modyn_dagster.catalog.evaluations import EvaluationRow
from modyn_dagster.reporting.scores import CompositeSeries, Interval
from modyn_dagster.reporting.tracked_points import Point, digest_of, interval_point

#: Slices of one model that are shown, by name; the catalog has all of them.
MOST_SLICES: Final = 100
_MOST_IN_NAME: Final = 250
_REFUSED: Final = re.compile(r"[^\w\- ]", re.ASCII)


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
    clean = [_REFUSED.sub("_", text).strip() or "_" for text in (attribute, value)]
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
