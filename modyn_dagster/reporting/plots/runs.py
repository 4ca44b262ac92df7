"""What a person looks at beside the numbers of a batch, a model, a run and a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from modyn_dagster.reporting.comparison import Comparison
from modyn_dagster.reporting.plots.figures import COLOURS, new_axes, note, prepare_axes, style_of
from modyn_dagster.reporting.scores import IntervalScore
from modyn_dagster.reporting.summary import RunSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TIME: Final = "sample time (UTC)"
_MOST_NAMES: Final = 30
#: Of a bar on a time axis, as a share of the axis.
_NARROWEST_BAR: Final = 1000


def loss_curve(points: Sequence[tuple[int, float]], epoch_losses: Sequence[float]) -> Figure:
    """Loss over training steps, and the mean of every epoch at its end. As recorded with a model."""
    figure, axes = new_axes("Training loss", "step (batches seen)", "loss")
    steps = [step for step, _ in points]
    axes.plot(steps, [loss for _, loss in points], color=COLOURS[5], linewidth=1.2, label="mean since the last point")
    if epoch_losses and steps:
        ends = np.linspace(0, steps[-1], len(epoch_losses) + 1)[1:]
        axes.plot(ends, epoch_losses, color=COLOURS[0], marker="o", markersize=4, label="mean of the epoch")
    axes.legend(fontsize=11)
    return figure


def epoch_stages(epochs: Sequence[Mapping[str, Any]]) -> Figure:
    """Seconds per stage of every epoch of a training, one on top of the other, with the samples a second. As recorded."""
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
    """Stages that any epoch has, in their order."""
    return list(dict.fromkeys(stage for epoch in epochs for stage in epoch["seconds"]))


def label_histogram(counts: Mapping[str, int]) -> Figure:
    """Samples per class (or bin), in the order given."""
    figure, axes = new_axes("Labels", "label", "samples", height=4.2, fitted=True)
    positions = np.arange(len(counts))
    bars = axes.bar(positions, list(counts.values()), color=COLOURS[0], label=f"{sum(counts.values()):,} samples")
    if len(counts) <= _MOST_NAMES:
        axes.bar_label(bars, [f"{count:,}" for count in counts.values()], fontsize=11)
    _name_some(axes, list(counts))
    axes.legend(fontsize=11)
    return figure


def samples_over_time(times: Sequence[datetime], counts: Sequence[int], names: Sequence[str], *, title: str) -> Figure:
    """Samples per batch or time span: a bar per entry at its time; in the order given where times are too close for that."""
    moments = sorted(_plain(time) for time in times)
    gap = min((later - sooner for sooner, later in pairwise(moments)), default=timedelta())
    on_time_axis = bool(moments) and gap * _NARROWEST_BAR > moments[-1] - moments[0]
    figure, axes = new_axes(title, _TIME if on_time_axis else "batch", "samples", height=4.2, fitted=True)
    label = f"{len(counts):,} batches, {sum(counts):,} samples"
    if on_time_axis:
        axes.bar([_plain(time) for time in times], counts, width=gap * 0.8, color=COLOURS[0], label=label)  # type: ignore[arg-type]  # matplotlib plots dates too
    else:
        axes.bar(np.arange(len(counts)), counts, color=COLOURS[0], label=label)
        _name_some(axes, names)
    axes.legend(fontsize=11)
    return figure


def score_over_time(summary: RunSummary) -> Figure:
    """Scores of the currently active and the currently trained model of one run, and when models were trained."""
    figure, axes = new_axes(f"{summary.pipeline}: {summary.metric} over time", _TIME, summary.metric)
    _plot_scores(axes, summary.trained, "currently trained", color=COLOURS[1], linestyle="--", marker="s", markersize=4)
    _plot_scores(axes, summary.active, "currently active", color=COLOURS[0], marker="o", markersize=5)
    _mark_triggers(axes, summary)
    _finish_scores(axes, [*summary.active, *summary.trained])
    return figure


def comparison_over_time(comparison: Comparison) -> Figure:
    """Score of the currently active model of each run; intervals outside the shared ones count in no mean."""
    metric = comparison.metric or "score"
    title = f"{metric} of the currently active model over time"
    figure, axes = new_axes(title, _TIME, metric)
    for index, run in enumerate(comparison.runs):
        mean = "no mean" if run.score is None else f"mean {run.score:.3f}"
        _plot_scores(axes, run.summary.active, f"{run.label} ({mean})", **style_of(index))
    if comparison.shared:
        first, last = comparison.shared[0][0], comparison.shared[-1][1]
        label = f"first to last of the {len(comparison.shared)} intervals that the means are over"
        axes.axvspan(_plain(first), _plain(last), color="#f3f3f3", zorder=0, label=label)  # type: ignore[arg-type]  # matplotlib plots dates too
    _finish_scores(axes, [score for run in comparison.runs for score in run.summary.active])
    return figure


def costs(comparison: Comparison) -> Figure:
    """Seconds by stage, and samples trained on, of each run."""
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


def _plot_scores(axes: Axes, scores: Sequence[IntervalScore], label: str, **style: object) -> None:
    # NaN breaks the line where there is no score.
    values = [np.nan if score.value is None else score.value for score in scores]
    middles = [_plain(score.start) + (score.end - score.start) / 2 for score in scores]
    axes.plot(middles, values, label=label, linewidth=1.8, **style)  # type: ignore[arg-type]  # matplotlib plots dates too, and styles are of many types


def _mark_triggers(axes: Axes, summary: RunSummary) -> None:
    moments = [_plain(model.train_end) for model in summary.models]
    for index, moment in enumerate(moments):
        label = "a model is trained up to here" if index == 0 else None
        axes.axvline(moment, color="#999999", linewidth=0.9, linestyle=":", label=label, zorder=0)  # type: ignore[arg-type]  # matplotlib plots dates too


def _finish_scores(axes: Axes, scores: Sequence[IntervalScore]) -> None:
    values = [score.value for score in scores if score.value is not None]
    if not values:
        note(axes, "no interval has a score yet")
    elif min(values) >= 0.0 and max(values) <= 1.0:
        axes.set_ylim(max(0.0, min(values) - 0.05), min(1.02, max(values) + 0.05))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=11, loc="best")


def _name_some(axes: Axes, names: Sequence[str]) -> None:
    """Tick labels, thinned until they can be read."""
    step = max(1, -(-len(names) // _MOST_NAMES))
    crowded = sum(len(name) for name in names[::step]) > 120
    axes.set_xticks(
        range(0, len(names), step), list(names[::step]), rotation=45 if crowded else 0, ha="right" if crowded else "center"
    )


def _stages(comparison: Comparison) -> list[str]:
    order = ("decide", "measure", "select", "train", "save", "evaluate")
    found = {stage for run in comparison.runs for stage in run.summary.seconds}
    return [*(stage for stage in order if stage in found), *sorted(found.difference(order))]


def _plain(moment: datetime) -> datetime:
    """In UTC without a zone, as matplotlib's axes have it."""
    return moment.astimezone(UTC).replace(tzinfo=None)
