"""Pictures of the time-biased sampling experiments, in the manner of the paper's Figures 1 and 10 to 13."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import matplotlib
import numpy as np

from benchmarks.tbs_streams import Array

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

_COLOURS: Final = {"R-TBS": "#009E73", "T-TBS": "#0072B2", "SW": "#D55E00", "Unif": "#7f7f7f"}


def draw(panels: Sequence[tuple[str, Mapping[str, Array]]], y_label: str, path: Path) -> None:
    """A PNG with one panel per title: lines over batches by sampler, a matrix's mean over runs."""
    columns = min(3, len(panels)) if len(panels) != 4 else 2
    rows = -(-len(panels) // columns)
    picture, axes = plt.subplots(rows, columns, figsize=(4.6 * columns, 3.1 * rows), layout="constrained", squeeze=False)
    for panel, (title, lines) in zip(axes.flat, panels, strict=False):
        _lines(panel, lines)
        panel.set_title(title, loc="left", fontsize=10)
        panel.set_xlabel("batch")
        panel.set_ylabel(y_label)
    for unused in axes.flat[len(panels) :]:
        unused.set_axis_off()
    axes.flat[0].legend(frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=110)
    plt.close(picture)


def _lines(axes: Axes, lines: Mapping[str, Array]) -> None:
    for name, values in lines.items():
        mean = np.nanmean(np.atleast_2d(values), axis=0)
        axes.plot(mean, label=name, color=_COLOURS[name.split(maxsplit=1)[0]], linewidth=1.3)
    axes.set_ylim(bottom=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
