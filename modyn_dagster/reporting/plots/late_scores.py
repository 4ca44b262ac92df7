"""Plot of scores as known against final ones, where labels arrive later than samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from modyn_dagster.imports import require
from modyn_dagster.reporting.plots.figures import COLOURS, note, prepare_axes
from modyn_dagster.reporting.plots.runs import finish_scores, mark_triggers, plot_estimates, plot_scores
from modyn_dagster.reporting.scores import final_scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from modyn_dagster.reporting.comparison import ComparedRun
    from modyn_dagster.reporting.scores import IntervalScore

_TIME: Final = "sample time (UTC)"
_WIDTH_INCHES: Final = 12.8
_PANEL_INCHES: Final = 3.1


def known_and_final(runs: Sequence[ComparedRun]) -> Figure:
    """Plot of the currently active model of each run: score as known, final score and, where it is made, the estimate.

    Every run has a panel of its own, since runs on several datasets may have other labels for the same samples.

    Args:
        runs: in the order of the panels; those whose labels arrive with their samples show the one score that they have.
    """
    require("matplotlib", "a plot")
    from matplotlib.figure import Figure

    n_panels = max(1, len(runs))
    figure = Figure(figsize=(_WIDTH_INCHES, 0.4 + _PANEL_INCHES * n_panels), layout="constrained")
    panels = figure.subplots(n_panels, 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    if not runs:
        prepare_axes(panels[0], "Scores as known and final", _TIME, "score")
        note(panels[0], "no pipeline has run")
        return figure
    drawn: list[IntervalScore] = []
    for axes, run in zip(panels, runs, strict=True):
        summary = run.summary
        prepare_axes(axes, run.label, _TIME, summary.metric)
        final = final_scores(summary.active)
        plot_scores(axes, summary.active, "as known", color=COLOURS[0], marker="o", markersize=5)
        if final:
            plot_scores(axes, final, "final", color=COLOURS[2], linestyle="--", marker="^", markersize=5)
        if summary.estimated:
            plot_estimates(axes, summary.estimated, "estimated")
        mark_triggers(axes, summary)
        drawn += [*summary.active, *final, *summary.estimated]
    for axes in panels:
        finish_scores(axes, drawn)
        # Beside the lines, which have no corner in common that is free.
        axes.legend(fontsize=11, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return figure
