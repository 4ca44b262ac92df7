"""Plot of the difference of two models along the stream, with the bounds that the verdict is read from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modyn_dagster.reporting.plots.figures import COLOURS, new_axes, note

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from modyn_dagster.evaluation.paired.verdict import PairedVerdict
    from modyn_dagster.reporting.paired_comparison import ModelComparison


def paired_bounds(comparison: ModelComparison) -> Figure:
    """Plot of the mean difference over the number of samples, with bounds, interval and margin.

    Args:
        comparison: by ``confidence_sequence``; of another test the final interval alone is drawn.
    """
    verdict, path = comparison.result
    test, percent = comparison.test, f"{comparison.test.confidence * 100:.6g}%"
    title = f"{comparison.candidate} against {comparison.incumbent}: {verdict.result}"
    figure, axes = new_axes(title, "samples", f"difference in {test.metric}, in favour of the candidate")
    if path is None:
        _draw_interval(axes, verdict, test.margin, percent)
        return figure
    axes.fill_between(path.n, path.low, path.high, color=COLOURS[0], alpha=0.12, linewidth=0, label=f"{percent} interval")
    axes.plot(path.n, path.mean, color=COLOURS[0], linewidth=2, label="mean difference so far")
    axes.plot(path.n, path.lower, color=COLOURS[1], linewidth=1.2, label=f"lower bound, {percent}")
    axes.plot(path.n, path.upper, color=COLOURS[2], linewidth=1.2, linestyle="--", label=f"upper bound, {percent}")
    axes.axhline(test.margin, color=COLOURS[6], linewidth=1, linestyle=":", label=f"margin {test.margin:g}")
    axes.set_xscale("log")
    # The first bounds are as wide as the scale; the later half of the path is what is read.
    later = slice(len(path.n) // 2, None)
    ends = [*path.low[later].tolist(), *path.high[later].tolist(), test.margin]
    reach = max(ends) - min(ends) or 1.0
    axes.set_ylim(min(ends) - 0.05 * reach, max(ends) + 0.05 * reach)
    axes.legend(fontsize=11, loc="upper right", frameon=False)
    return figure


def _draw_interval(axes: Axes, verdict: PairedVerdict, margin: float, percent: str) -> None:
    """Draw the difference and its interval at the number of samples of a verdict."""
    if verdict.bounds is None or verdict.difference is None:
        note(axes, verdict.reason)
        return
    reach = [[verdict.difference - verdict.bounds.low], [verdict.bounds.high - verdict.difference]]
    axes.errorbar(
        [verdict.n], [verdict.difference], yerr=reach, fmt="o", capsize=8, color=COLOURS[0], label=f"{percent} interval"
    )
    axes.axhline(margin, color=COLOURS[6], linewidth=1, linestyle=":", label=f"margin {margin:g}")
    axes.legend(fontsize=11, loc="upper right", frameon=False)
