"""Pictures of selection policies: scores at every ratio beside full data's, and at the largest ratio over triggers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import matplotlib
import numpy as np
import numpy.typing as npt

from benchmarks.selection_policies import FULL, POLICIES
from benchmarks.selection_runs import SKIPPED, Result

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_RATIOS: Final = {0.5: "#0072B2", 0.25: "#56B4E9", 0.125: "#E69F00"}
_METRICS: Final = {"accuracy": "accuracy, %", "f1_macro": "macro-F1, %"}
#: Drawn over triggers, among all the others in grey.
_LINES: Final = {FULL.name: "#000000", "uniform": "#D55E00", "margin": "#0072B2", "DLIS": "#CC79A7", "RS2": "#009E73"}

#: Scores of all seeds by stream, policy and ratio.
Scores = Mapping[tuple[str, str, float], Sequence[float]]


def draw_ratios(scores: Scores, metrics: Mapping[str, str], path: Path) -> None:
    """One panel per stream: mean scores of every policy by ratio, with the least and the largest seed; dashed: full data."""
    streams = list(metrics)
    picture, panels = plt.subplots(
        1, len(streams), figsize=(5.2 * len(streams), 4.6), layout="constrained", squeeze=False, sharey=False
    )
    for axes, stream in zip(panels[0], streams, strict=True):
        mine = {(policy, ratio): list(values) for (name, policy, ratio), values in scores.items() if name == stream}
        names = [name for name in POLICIES if name != FULL.name and any(policy == name for policy, _ in mine)]
        ratios = sorted({ratio for policy, ratio in mine if policy != FULL.name}, reverse=True)
        for place, ratio in enumerate(ratios):
            there = [(at, mine[name, ratio]) for at, name in enumerate(names) if (name, ratio) in mine]
            means = [100 * float(np.mean(values)) for _, values in there]
            spans = [
                [mean - 100 * min(values) for mean, (_, values) in zip(means, there, strict=True)],
                [100 * max(values) - mean for mean, (_, values) in zip(means, there, strict=True)],
            ]
            at = [at + 0.22 * (place - (len(ratios) - 1) / 2) for at, _ in there]
            colour = _RATIOS.get(ratio, "#999999")
            axes.errorbar(at, means, yerr=spans, fmt="o", color=colour, capsize=2, markersize=5, label=f"{100 * ratio:g} %")
        if (FULL.name, 1.0) in mine:
            axes.axhline(100 * float(np.mean(mine[FULL.name, 1.0])), color="black", linestyle="--", label="full data")
        axes.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=8)
        axes.set_ylabel(_METRICS.get(metrics[stream], metrics[stream]))
        axes.set_title(stream, loc="left", fontsize=10)
        axes.grid(visible=True, axis="y", color="#e6e6e6", linewidth=0.7)
        axes.set_axisbelow(True)
    panels[0][0].legend(fontsize=8, frameon=False)
    _save(picture, path)


def draw_series(stream: str, results: Sequence[Result], path: Path) -> None:
    """At the largest ratio. Left: scores of all triggers as boxes, by policy; right: over triggers."""
    ratio = max((one.ratio for one in results if one.policy != FULL.name), default=1.0)
    shown = [one for one in results if one.policy == FULL.name or one.ratio == ratio]
    names = [name for name in POLICIES if any(one.policy == name for one in shown)]
    series = {name: _mean_series([one for one in shown if one.policy == name]) for name in names}
    metric = _METRICS.get(results[0].metric, results[0].metric)
    picture, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4), width_ratios=(1.3, 1), layout="constrained")
    left.boxplot([series[name][SKIPPED:] for name in names], showmeans=True, widths=0.6)
    left.set_xticks(range(1, len(names) + 1), names, rotation=45, ha="right", fontsize=8)
    left.set_ylabel(metric)
    left.set_title(f"{stream}, {100 * ratio:g} %: triggers from the second on (triangles: mean)", loc="left", fontsize=10)
    for name in sorted(names, key=lambda name: name in _LINES):
        _line(right, name, series[name])
    right.set_xlabel("trigger")
    right.set_ylabel(metric)
    right.set_title("currently trained composite model, mean over seeds", loc="left", fontsize=10)
    right.legend(fontsize=8, frameon=False)
    for axes in (left, right):
        axes.grid(visible=True, axis="y", color="#e6e6e6", linewidth=0.7)
        axes.set_axisbelow(True)
    _save(picture, path)


def _line(axes: Axes, name: str, values: npt.NDArray[np.float64]) -> None:
    known = name in _LINES
    style = "--" if name == FULL.name else "-"
    axes.plot(
        np.arange(1, len(values) + 1),
        values,
        style,
        color=_LINES.get(name, "#cccccc"),
        linewidth=1.6 if known else 1.0,
        label=name if known else None,
    )


def _mean_series(results: Sequence[Result]) -> npt.NDArray[np.float64]:
    """Over seeds, in percent; NaN where there is no value."""
    values = [[np.nan if value is None else value for value in one.series] for one in results]
    return np.asarray(100 * np.mean(np.array(values, dtype=np.float64), axis=0))


def _save(picture: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=110)
    plt.close(picture)
