"""Is there enough fresh data to train again? How full the places of a time-biased sample are, over sample time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from itertools import groupby
from typing import TYPE_CHECKING

from modyn_dagster.catalog.training_sets import FillPoint
from modyn_dagster.reporting.figures import COLOURS, new_axes, note

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def fill_over_time(fills: Sequence[FillPoint], *, min_fill: float, title: str) -> Figure:
    """C / n of an R-TBS with its triggers, and the share below which a trigger is skipped."""
    figure, axes = new_axes(title, "sample time (UTC)", "fill: C / n")
    axes.set_ylim(0, 1.05)
    if not fills:
        note(axes, "nothing was taken in yet")
        return figure
    times = [point.time.astimezone(UTC).replace(tzinfo=None) for point in fills]
    axes.plot(times, [point.fill for point in fills], color=COLOURS[0], marker="o", markersize=3, label="fill")  # type: ignore[arg-type]  # matplotlib plots dates too
    if min_fill > 0:
        axes.axhline(min_fill, color=COLOURS[1], linestyle="--", label="min_fill")
    ends = [list(points)[-1] for _, points in groupby(fills, key=lambda point: point.ordinal)]
    for skipped, marker, label in ((False, "^", "trained on"), (True, "x", "skipped")):
        shown = [point for point in ends if point.skipped is skipped]
        if shown:
            at = [point.time.astimezone(UTC).replace(tzinfo=None) for point in shown]
            axes.plot(at, [point.fill for point in shown], marker, color=COLOURS[2], markersize=9, label=label)  # type: ignore[arg-type]  # matplotlib plots dates too
    axes.legend(fontsize=10, loc="best")
    return figure
