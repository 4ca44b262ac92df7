"""Pictures that every batch, model and evaluation carries, as small SVG charts (``svg``)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from modyn_dagster.reporting.plots.figures import COLOURS
from modyn_dagster.reporting.plots.runs import stages_of
from modyn_dagster.reporting.plots.scale import Axes
from modyn_dagster.reporting.plots.svg import Line, Verticals, bar_chart, line_chart, svg_markdown
from modyn_dagster.reporting.scores import IntervalScore, final_scores
from modyn_dagster.reporting.summary import RunSummary


def loss_sketch(points: Sequence[tuple[int, float]], epoch_losses: Sequence[float]) -> str:
    """Loss over training steps and mean of every epoch at its end, as an inline image."""
    axes = Axes("Training loss", "step (batches seen)", "loss", note="no step has a loss")
    lines = [Line("mean since the last point", list(points), COLOURS[5])]
    if epoch_losses and points:
        ends = np.linspace(0, points[-1][0], len(epoch_losses) + 1)[1:].tolist()
        lines.append(Line("mean of the epoch", list(zip(ends, epoch_losses, strict=True)), COLOURS[0], mark="dot"))
    return svg_markdown(axes.title, line_chart(axes, lines))


def epochs_sketch(epochs: Sequence[Mapping[str, Any]]) -> str:
    """Seconds per stage of every epoch, stacked, as an inline image."""
    axes = Axes("Seconds per epoch", "epoch", "seconds")
    stacks = {}
    for stage in stages_of(epochs):
        seconds = [float(epoch["seconds"].get(stage, 0.0)) for epoch in epochs]
        stacks[f"{stage} ({sum(seconds):.3g} s)"] = seconds
    return svg_markdown(axes.title, bar_chart(axes, [str(n) for n in range(1, len(epochs) + 1)], stacks, COLOURS))


def labels_sketch(counts: Mapping[str, int]) -> str:
    """Samples per class or bin, in the given order, as an inline image."""
    axes = Axes("Labels", "label", "samples", note="no sample has a label")
    stacks = {f"{sum(counts.values()):,} samples": [float(count) for count in counts.values()]}
    return svg_markdown(axes.title, bar_chart(axes, list(counts), stacks, COLOURS))


def scores_svg(summary: RunSummary) -> str:
    """Scores of the currently active and the currently trained model of a run, and the training times, as SVG.

    Where labels arrive later, the final scores of the active model have a line of their own.
    """
    final = final_scores(summary.active)
    series = [*summary.active, *summary.trained, *final, *summary.served, *summary.own, *summary.estimated]
    values = [score.value for score in series if score.value is not None]
    bounded = values and min(values) >= 0.0 and max(values) <= 1.0
    y_range = (max(0.0, min(values) - 0.05), min(1.02, max(values) + 0.05)) if bounded else None
    title = f"{summary.pipeline}: {summary.metric} over time"
    axes = Axes(title, "sample time (UTC)", summary.metric, times=True, y_range=y_range, note="no interval has a score yet")
    lines = [
        Line("currently trained", _points(summary.trained), COLOURS[1], dashed=True, mark="dot"),
        Line("currently active", _points(summary.active), COLOURS[0], mark="dot"),
    ]
    if final:
        lines.append(Line("currently active, with the labels so far", _points(final), COLOURS[2], mark="dot"))
    if summary.served:
        lines.append(Line("served: the champion of the time", _points(summary.served), COLOURS[3], mark="dot"))
    if summary.own:
        lines.append(Line(f"{summary.composite}: your composite model", _points(summary.own), COLOURS[5], mark="dot"))
    if summary.estimated:
        lines.append(Line("currently active, estimated", _points(summary.estimated), COLOURS[4], dashed=True, mark="dot"))
    trained = [model.train_end.timestamp() for model in summary.models]
    return line_chart(axes, lines, Verticals(trained, "a model is trained up to here"))


def scores_sketch(summary: RunSummary) -> str:
    """``scores_svg`` as an inline image."""
    return svg_markdown(f"{summary.pipeline}: {summary.metric} over time", scores_svg(summary))


def _points(scores: Sequence[IntervalScore]) -> list[tuple[float, float | None]]:
    return [((score.start + (score.end - score.start) / 2).timestamp(), score.value) for score in scores]
