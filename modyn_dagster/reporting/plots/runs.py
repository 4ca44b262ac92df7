"""Plots of batches, models, runs and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from modyn_dagster.imports import require
from modyn_dagster.reporting.comparison import Comparison
from modyn_dagster.reporting.plots.figures import COLOURS, naive_utc, new_axes, note, prepare_axes, style_of
from modyn_dagster.reporting.scores import IntervalScore, final_scores
from modyn_dagster.reporting.summary import RunSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TIME: Final = "sample time (UTC)"
_MOST_NAMES: Final = 30


def loss_curve(points: Sequence[tuple[int, float]], epoch_losses: Sequence[float]) -> Figure:
    """Plot of the loss over training steps, and of the mean of every epoch at its end, as recorded with a model."""
    figure, axes = new_axes("Training loss", "step (batches seen)", "loss")
    steps = [step for step, _ in points]
    axes.plot(steps, [loss for _, loss in points], color=COLOURS[5], linewidth=1.2, label="mean since the last point")
    if epoch_losses and steps:
        ends = np.linspace(0, steps[-1], len(epoch_losses) + 1)[1:]
        axes.plot(ends, epoch_losses, color=COLOURS[0], marker="o", markersize=4, label="mean of the epoch")
    axes.legend(fontsize=11)
    return figure


def epoch_stages(epochs: Sequence[Mapping[str, Any]]) -> Figure:
    """Plot of the seconds per stage of every epoch, stacked, as recorded with a model."""
    figure, axes = new_axes("Seconds per epoch", "epoch", "seconds", height=4.2)
    numbers, below = np.arange(1, len(epochs) + 1), np.zeros(len(epochs))
    for i, stage in enumerate(stages_of(epochs)):
        seconds = np.array([epoch["seconds"].get(stage, 0.0) for epoch in epochs])
        rate = f"{stage} ({seconds.sum():.3g} s)"
        axes.bar(numbers, seconds, bottom=below, color=COLOURS[i % len(COLOURS)], label=rate)
        below += seconds
    axes.legend(fontsize=11)
    return figure


def stages_of(epochs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Stages that occur in any epoch, in their order."""
    return list(dict.fromkeys(stage for epoch in epochs for stage in epoch["seconds"]))


def label_histogram(counts: Mapping[str, int]) -> Figure:
    """Plot of the samples per class or bin, in the given order."""
    figure, axes = new_axes("Labels", "label", "samples", height=4.2, fitted=True)
    positions = np.arange(len(counts))
    bars = axes.bar(positions, list(counts.values()), color=COLOURS[0], label=f"{sum(counts.values()):,} samples")
    if len(counts) <= _MOST_NAMES:
        axes.bar_label(bars, [f"{count:,}" for count in counts.values()], fontsize=11)
    _thin_ticks(axes, list(counts))
    axes.legend(fontsize=11)
    return figure


def score_over_time(summary: RunSummary) -> Figure:
    """Plot of the scores of the currently active and the currently trained model of a run, and of the training times."""
    figure, axes = new_axes(f"{summary.pipeline}: {summary.metric} over time", _TIME, summary.metric)
    plot_scores(axes, summary.trained, "currently trained", color=COLOURS[1], linestyle="--", marker="s", markersize=4)
    plot_scores(axes, summary.active, "currently active", color=COLOURS[0], marker="o", markersize=5)
    final = final_scores(summary.active)
    if final:
        plot_scores(axes, final, "currently active, with the labels so far", color=COLOURS[2], marker="^", markersize=4)
    if summary.served:
        plot_scores(axes, summary.served, "served: the champion of the time", color=COLOURS[3], marker="D", markersize=4)
    if summary.own:
        plot_scores(axes, summary.own, f"{summary.composite}: your composite model", color=COLOURS[5], marker="v", markersize=4)
    if summary.estimated:
        plot_estimates(axes, summary.estimated, "currently active, estimated")
    mark_triggers(axes, summary)
    seen = [score for score in (*summary.active, *summary.trained) if score.possibly_seen]
    if seen:
        first, last = naive_utc(min(score.start for score in seen)), naive_utc(max(score.end for score in seen))
        axes.axvspan(first, last, color="#f3f3f3", zorder=0, label="the pretrained model may have seen these")  # type: ignore[arg-type]  # matplotlib plots dates too
    finish_scores(axes, [*summary.active, *summary.trained, *final, *summary.served, *summary.own, *summary.estimated])
    return figure


def comparison_over_time(comparison: Comparison) -> Figure:
    """Plot of the scores of the currently active model of each run; the means are over the shared intervals."""
    metric = comparison.metric or "score"
    title = f"{metric} of the currently active model over time"
    figure, axes = new_axes(title, _TIME, metric)
    for index, run in enumerate(comparison.runs):
        mean = "no mean" if run.score is None else f"mean {run.score:.3f}"
        plot_scores(axes, run.summary.active, f"{run.label} ({mean})", **style_of(index))
    if comparison.shared:
        first, last = comparison.shared[0][0], comparison.shared[-1][1]
        label = f"first to last of the {len(comparison.shared)} intervals that the means are over"
        axes.axvspan(naive_utc(first), naive_utc(last), color="#f3f3f3", zorder=0, label=label)  # type: ignore[arg-type]  # matplotlib plots dates too
    finish_scores(axes, [score for run in comparison.runs for score in run.summary.active])
    return figure


def costs(comparison: Comparison) -> Figure:
    """Plot of the seconds by stage and the samples trained on of each run."""
    require("matplotlib", "a plot")
    from matplotlib.figure import Figure

    rows = max(1, len(comparison.runs))
    figure = Figure(figsize=(12.8, 1.8 + 0.6 * rows), layout="constrained")
    seconds, samples = figure.subplots(1, 2, sharey=True)
    prepare_axes(seconds, "Cost in time", "wall time (s)", "")
    prepare_axes(samples, "Cost in data", "samples trained on", "")
    positions = np.arange(len(comparison.runs))
    left = np.zeros(len(comparison.runs))
    for index, stage in enumerate(_stages(comparison)):
        widths = np.array([run.summary.seconds.get(stage, 0.0) for run in comparison.runs])
        seconds.barh(positions, widths, left=left, color=COLOURS[index % len(COLOURS)], label=stage)
        left += widths
    counts = [run.summary.samples_trained_on for run in comparison.runs]
    bars = samples.barh(positions, counts, color=COLOURS[0], label="samples")
    samples.bar_label(bars, [f" {n:,}, triggers: {run.summary.triggers.trained}" for n, run in zip(counts, comparison.runs)])
    samples.margins(x=0.35)
    seconds.set_yticks(positions, [run.label for run in comparison.runs])
    seconds.invert_yaxis()
    if comparison.runs:
        seconds.legend(fontsize=10, title="stage")
    else:
        note(seconds, "no pipeline has run")
    return figure


def plot_scores(axes: Axes, scores: Sequence[IntervalScore], label: str, **style: object) -> None:
    """Draw a line through the scores at the middles of their intervals, interrupted where there is none."""
    # NaN breaks the line where there is no score.
    values = [np.nan if score.value is None else score.value for score in scores]
    middles = [naive_utc(score.start) + (score.end - score.start) / 2 for score in scores]
    axes.plot(middles, values, label=label, linewidth=1.8, **style)  # type: ignore[arg-type]  # matplotlib plots dates too, and styles are of many types


def plot_estimates(axes: Axes, scores: Sequence[IntervalScore], label: str) -> None:
    """Draw estimates, with their intervals as a band."""
    plot_scores(axes, scores, label, color=COLOURS[4], linestyle="-.", marker="D", markersize=4)
    middles = [naive_utc(score.start) + (score.end - score.start) / 2 for score in scores]
    low, high = ([np.nan if (end := getattr(score, side)) is None else end for score in scores] for side in ("low", "high"))
    axes.fill_between(middles, low, high, color=COLOURS[4], alpha=0.2, label="interval of the estimate")  # type: ignore[arg-type]  # matplotlib plots dates too


def mark_triggers(axes: Axes, summary: RunSummary) -> None:
    """Draw a dotted vertical line at the last training time of every model."""
    moments = [naive_utc(model.train_end) for model in summary.models]
    for index, moment in enumerate(moments):
        label = "a model is trained up to here" if index == 0 else None
        axes.axvline(moment, color="#999999", linewidth=0.9, linestyle=":", label=label, zorder=0)  # type: ignore[arg-type]  # matplotlib plots dates too


def finish_scores(axes: Axes, scores: Sequence[IntervalScore]) -> None:
    """Fit the axis to scores between 0 and 1, add the legend, and say so where no interval has a score."""
    values = [score.value for score in scores if score.value is not None]
    if not values:
        note(axes, "no interval has a score yet")
    elif min(values) >= 0.0 and max(values) <= 1.0:
        axes.set_ylim(max(0.0, min(values) - 0.05), min(1.02, max(values) + 0.05))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=11, loc="best")


def _thin_ticks(axes: Axes, names: Sequence[str]) -> None:
    """Set tick labels, thinned until they are readable."""
    step = max(1, -(-len(names) // _MOST_NAMES))
    crowded = sum(len(name) for name in names[::step]) > 120
    axes.set_xticks(
        range(0, len(names), step), list(names[::step]), rotation=45 if crowded else 0, ha="right" if crowded else "center"
    )


def _stages(comparison: Comparison) -> list[str]:
    order = ("decide", "measure", "select", "train", "save", "evaluate", "promote")
    stages = {stage for run in comparison.runs for stage in run.summary.seconds}
    return [*(stage for stage in order if stage in stages), *sorted(stages.difference(order))]
