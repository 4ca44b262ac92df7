"""Plots of a table of policies: score against triggers, as in Modyn's Figures 12 and 14, and times of triggers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import matplotlib

from benchmarks.policy_runs import Outcome

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

_COLOURS: Final = (
    ("time", "#7f7f7f"),
    ("amount", "#b59b00"),
    ("trained once", "#000000"),
    ("accuracy", "#D55E00"),
    ("ADWIN", "#E69F00"),
    ("cost", "#CC79A7"),
    ("KS", "#56B4E9"),
    ("MMD", "#0072B2"),
    ("AutoDrift", "#009E73"),
    ("the same", "#009E73"),
)


def draw(stream: str, outcomes: Sequence[Outcome], path: Path) -> None:
    """Write a PNG: on the left triggers and score of every policy, on the right its triggers in sample time."""
    judged = [outcome for outcome in outcomes if outcome.score is not None]
    picture, (left, right) = plt.subplots(1, 2, figsize=(14, 5.4), width_ratios=(1.25, 1), layout="constrained")
    _scatter(left, judged)
    _rows(right, sorted(judged, key=lambda outcome: outcome.score or 0.0))
    left.set_title(f"{stream}: accuracy of the currently active model", loc="left")
    right.set_title("triggers", loc="left")
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=110)
    plt.close(picture)


def _scatter(axes: Axes, outcomes: Sequence[Outcome]) -> None:
    for number, outcome in enumerate(outcomes, 1):
        place = (max(outcome.triggers, 0.5), 100 * (outcome.score or 0.0))
        axes.scatter(*place, color=_colour(outcome.policy), s=46, zorder=3)
        axes.annotate(str(number), place, xytext=(5, 4), textcoords="offset points", fontsize=9)
        axes.scatter([], [], color=_colour(outcome.policy), s=46, label=f"{number}  {outcome.policy}")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.set_xlabel("triggers")
    axes.set_ylabel("mean accuracy, %")
    axes.grid(visible=True, which="both", color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def _rows(axes: Axes, outcomes: Sequence[Outcome]) -> None:
    # matplotlib's dates are days since 1970.
    places = [[moment.timestamp() / 86_400 for moment in outcome.trained_until] for outcome in outcomes]
    colours = [_colour(outcome.policy) for outcome in outcomes]
    axes.eventplot(places, colors=colours, linelengths=0.8, linewidths=1.2)
    labels = [f"{outcome.policy}  {100 * (outcome.score or 0.0):.1f} %" for outcome in outcomes]
    axes.set_yticks(range(len(outcomes)), labels, fontsize=8)
    axes.xaxis_date()
    axes.tick_params(axis="x", rotation=30)


def _colour(policy: str) -> str:
    return next((colour for word, colour in _COLOURS if policy.startswith(word)), "#333333")
