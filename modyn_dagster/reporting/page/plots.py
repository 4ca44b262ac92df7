"""Main plots of a report as images, for Dagster's metadata, for MLflow and for pages without JavaScript."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation import (
    comparable_intervals,
    composite_scores,
    currently_active,
    expected_shortfall,
    pareto_front,
)
from modyn_dagster.reporting.page.data import PipelineRecord, ReportData
from modyn_dagster.reporting.plots.figures import COLOURS, new_axes, note, style_of
from modyn_dagster.spec.tasks.metrics import lower_is_better

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Axis label and cost of a pipeline, by name.
COSTS: Final[Mapping[str, tuple[str, Callable[[PipelineRecord], float]]]] = {
    "triggers": ("trainings", lambda record: float(len(record.train_ends))),
    "samples": ("samples trained on", lambda record: float(record.n_samples.sum())),
    "seconds": ("wall time of all stages (s)", lambda record: record.total_seconds),
}
_MOST_LABELS: Final = 16
_WORST: Final = 10
#: Matrices drawn as images; the page has those of all pipelines.
_MOST_MATRICES: Final = 4


def report_figures(data: ReportData) -> dict[str, Figure]:
    """Main plots by name: cost against score, scores over the intervals, and the score matrices of the first pipelines."""
    if not data.metrics:
        return {}
    metric = data.metrics[0]
    figures = {"pareto": pareto_figure(data, metric), "boxes": box_figure(data, metric)}
    for record in data.pipelines[:_MOST_MATRICES]:
        figures[f"matrix {record.label}"] = matrix_figure(data, record, metric)
    return figures


def shared_scores(data: ReportData, metric: str) -> list[npt.NDArray[np.float64]]:
    """Scores of every pipeline's active model on the intervals where all have an active model and a defined score."""
    active = [currently_active(record.train_ends, data.anchors) for record in data.pipelines]
    series = [composite_scores(record.matrices[metric], chosen) for record, chosen in zip(data.pipelines, active, strict=True)]
    if not series:
        return []
    among = comparable_intervals(active) & np.logical_and.reduce([np.isfinite(scores) for scores in series])
    return [scores[among] for scores in series]


def pareto_figure(data: ReportData, metric: str, cost: str = "triggers") -> Figure:
    """Cost (a name of ``COSTS``) against score of every run, with the Pareto front."""
    label, cost_of = COSTS[cost]
    figure, axes = new_axes(f"{data.title}: cost against score", label, _score_label(metric))
    series = zip(data.pipelines, shared_scores(data, metric), strict=True)
    scored = [(record, float(scores.mean()), cost_of(record)) for record, scores in series if len(scores)]
    for index, (record, score, spent) in enumerate(scored):
        axes.plot([spent], [score], linestyle="", markersize=10, label=record.label, **style_of(index))
    _seed_error_bars(axes, scored)
    if scored:
        costs, scores = [spent for *_, spent in scored], [score for _, score, _ in scored]
        on_front = pareto_front(costs, scores, lower_is_better=lower_is_better(metric))
        corners = sorted((costs[i], scores[i]) for i in np.flatnonzero(on_front))
        axes.step(*zip(*corners, strict=True), where="post", color="#555555", linestyle=":", label="Pareto front")
        axes.set_xlim(left=0)
        axes.margins(y=0.15)
        axes.legend(fontsize=10, loc="best")
    else:
        note(axes, "no shared interval has been scored yet")
    return figure


def _seed_error_bars(axes: Axes, scored: Sequence[tuple[PipelineRecord, float, float]]) -> None:
    """Draw a cross per pipeline with several seeds: the means, and a standard deviation to every side."""
    for group in dict.fromkeys(record.group for record, *_ in scored):
        runs = [(spent, score) for record, score, spent in scored if record.group == group]
        if len(runs) > 1:
            (cost, score), (reach, height) = np.mean(runs, axis=0), np.std(runs, axis=0, ddof=1)
            label = f"{group}: mean of {len(runs)} seeds ± deviation"
            axes.errorbar([cost], [score], xerr=[reach], yerr=[height], color="#333333", capsize=4, linewidth=1.4, label=label)


def matrix_figure(data: ReportData, record: PipelineRecord, metric: str) -> Figure:
    """Score of every model on every interval, with boxes around the cells of the currently active model."""
    from matplotlib.patches import Rectangle

    title = f"{record.label}: {metric} of every model in every interval"
    figure, axes = new_axes(title, "start of the interval (UTC)", "model, in order of training", height=5.6, fitted=True)
    values = record.matrices[metric]
    axes.grid(visible=False)
    if not np.isfinite(values).any():
        note(axes, "no interval has been scored yet")
        return figure
    shown = axes.imshow(values, aspect="auto", origin="lower", cmap="viridis_r" if lower_is_better(metric) else "viridis")
    figure.colorbar(shown, ax=axes, label=metric, pad=0.01)
    for interval, model in enumerate(currently_active(record.train_ends, data.anchors).tolist()):
        if model >= 0:
            axes.add_patch(Rectangle((interval - 0.5, model - 0.5), 1, 1, fill=False, edgecolor=COLOURS[1], linewidth=1.4))
    axes.plot(
        [], [], linestyle="", marker="s", markerfacecolor="none", markeredgecolor=COLOURS[1], label="currently active model"
    )
    axes.legend(fontsize=10, loc="lower right", bbox_to_anchor=(1, 1), frameon=False)
    _thin_ticks(axes, [str(start.astype("datetime64[D]")) for start in data.starts], values.shape[0])
    return figure


def box_figure(data: ReportData, metric: str) -> Figure:
    """Distribution of each run's scores over the shared intervals: median, quartiles, mean and mean of the worst tenth."""
    figure, axes = new_axes(f"{data.title}: scores over the shared intervals", "pipeline", _score_label(metric), fitted=True)
    series = zip(data.pipelines, shared_scores(data, metric), strict=True)
    scores = [(record.label, values) for record, values in series if len(values)]
    if not scores:
        note(axes, "no shared interval has been scored yet")
        return figure
    positions = np.arange(1, len(scores) + 1)
    axes.boxplot([values for _, values in scores], showmeans=True, meanline=True, medianprops={"color": COLOURS[1]})
    worst = [expected_shortfall(values, _WORST, lower_is_better=lower_is_better(metric)) for _, values in scores]
    axes.plot(
        positions,
        [np.nan if value is None else value for value in worst],
        linestyle="",
        marker="v",
        color=COLOURS[0],
        label=f"mean of the worst {_WORST} %",
    )
    crowded = sum(len(name) for name, _ in scores) > 100
    axes.set_xticks(positions, [name for name, _ in scores], rotation=30 if crowded else 0, ha="right" if crowded else "center")
    axes.legend(fontsize=10)
    return figure


def _score_label(metric: str) -> str:
    return f"{metric} ({'lower' if lower_is_better(metric) else 'higher'} is better)"


def _thin_ticks(axes: Axes, starts: list[str], n_models: int) -> None:
    step = max(1, -(-len(starts) // _MOST_LABELS))
    axes.set_xticks(range(0, len(starts), step), starts[::step], rotation=40, ha="right")
    step = max(1, -(-n_models // _MOST_LABELS))
    axes.set_yticks(range(0, n_models, step), [str(number + 1) for number in range(0, n_models, step)])
