"""Plots of decisions over sample time: scores against thresholds, and the fill of a time-biased sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from modyn_dagster.catalog.decisions import DecisionRow
from modyn_dagster.catalog.results.training_sets import FillPoint
from modyn_dagster.reporting.plots.figures import COLOURS, naive_utc, new_axes, note, prepare_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_MOST_PANELS: Final = 6
_PANEL_INCHES: Final = 2.6


@dataclass(frozen=True, slots=True)
class DecisionScore:
    """Score of a decision; the threshold is None while a dynamic one has seen too few values."""

    time: datetime
    score: float
    threshold: float | None
    fire: bool


def decision_scores(decisions: Sequence[DecisionRow]) -> dict[str, list[DecisionScore]]:
    """Scores by name: ``score`` for the decision itself, members and metrics by their paths, for example ``by_drift/mmd``."""
    scores: dict[str, list[DecisionScore]] = {}
    for row in decisions:
        for name, content in _parts("", {"score": row.score, "threshold": row.threshold, "details": row.details}):
            if content.get("score") is not None:
                threshold = content.get("threshold")
                score = DecisionScore(row.time, float(content["score"]), threshold, bool(content.get("fire", row.fire)))
                scores.setdefault(name or "score", []).append(score)
    return scores


def scores_and_thresholds(decisions: Sequence[DecisionRow], *, title: str) -> Figure:
    """Plot of scores and their thresholds, one panel each, with the moments when a trigger fired."""
    from matplotlib.figure import Figure

    series = dict(list(decision_scores(decisions).items())[:_MOST_PANELS])
    n_panels = max(1, len(series))
    figure = Figure(figsize=(12.8, 1.2 + _PANEL_INCHES * n_panels), layout="constrained")
    panels = figure.subplots(n_panels, 1, sharex=True, squeeze=False)[:, 0]
    fired = [naive_utc(row.time) for row in decisions if row.fire]
    for axes, (name, scores) in zip(panels, series.items(), strict=False):
        _plot(axes, title if axes is panels[0] else "", name, scores, fired)
    if not series:
        prepare_axes(panels[0], title, "sample time (UTC)", "score")
        note(panels[0], "no decision was taken from a score yet")
    # Tick labels that are hours apart have no year.
    span = f", {naive_utc(decisions[0].time):%Y-%m-%d} to {naive_utc(decisions[-1].time):%Y-%m-%d}" if decisions else ""
    panels[-1].set_xlabel(f"sample time (UTC){span}", fontsize=12)
    return figure


def _parts(path: str, content: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A decision and its members and metrics, each with its path."""
    yield path, content
    details = content.get("details") or {}
    for kind in ("members", "metrics"):
        for name, part in (details.get(kind) or {}).items():
            if isinstance(part, Mapping):
                yield from _parts(f"{path}/{name}" if path else name, part)


def _plot(axes: Axes, title: str, name: str, scores: Sequence[DecisionScore], fired: Sequence[datetime]) -> None:
    prepare_axes(axes, title, "", name)
    times = [naive_utc(score.time) for score in scores]
    axes.plot(times, [score.score for score in scores], color=COLOURS[0], marker="o", markersize=3, label="score")  # type: ignore[arg-type]  # matplotlib plots dates too
    # NaN breaks the line where there is no threshold.
    thresholds = [np.nan if score.threshold is None else score.threshold for score in scores]
    axes.plot(times, thresholds, color=COLOURS[1], linestyle="--", label="threshold")  # type: ignore[arg-type]  # matplotlib plots dates too
    for index, moment in enumerate(fired):
        label = "a trigger" if index == 0 else None
        axes.axvline(moment, color=COLOURS[2], linewidth=1.6, linestyle="-.", label=label, zorder=1)  # type: ignore[arg-type]  # matplotlib plots dates too
    if title:
        axes.legend(fontsize=10, loc="best")


def fill_over_time(fills: Sequence[FillPoint], *, min_fill: float, title: str) -> Figure:
    """Plot of C / n of an R-TBS with its triggers, and the share below which a trigger is skipped."""
    figure, axes = new_axes(title, "sample time (UTC)", "fill: C / n")
    axes.set_ylim(0, 1.05)
    if not fills:
        note(axes, "nothing was taken in yet")
        return figure
    times = [naive_utc(point.time) for point in fills]
    axes.plot(times, [point.fill for point in fills], color=COLOURS[0], marker="o", markersize=3, label="fill")  # type: ignore[arg-type]  # matplotlib plots dates too
    if min_fill > 0:
        axes.axhline(min_fill, color=COLOURS[1], linestyle="--", label="min_fill")
    ends = [list(points)[-1] for _, points in groupby(fills, key=lambda point: point.ordinal)]
    for skipped, marker, label in ((False, "^", "trained on"), (True, "x", "skipped")):
        shown = [point for point in ends if point.skipped is skipped]
        if shown:
            at = [naive_utc(point.time) for point in shown]
            axes.plot(at, [point.fill for point in shown], marker, color=COLOURS[2], markersize=9, label=label)  # type: ignore[arg-type]  # matplotlib plots dates too
    axes.legend(fontsize=10, loc="best")
    return figure
