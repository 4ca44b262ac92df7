"""Pictures of sampling in shards, in the manner of the paper's Figures 7 to 9: variants, workers, sizes of batches."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import matplotlib

from benchmarks.measure import Spread

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

_NAMES: Final = {
    "cent_kv_rj": "Cent,KV,RJ",
    "cent_kv_cj": "Cent,KV,CJ",
    "cent_cp": "Cent,CP",
    "dist_cp": "Dist,CP",
    "dist_cp.in_process": "Dist,CP\nthis process",
    "d_ttbs": "D-T-TBS",
    "d_ttbs.in_process": "D-T-TBS\nthis process",
    "one_thread": "R-TBS\none thread",
    "one_thread.ttbs": "T-TBS\none thread",
}
_LINES: Final = {
    "pool": ("D-R-TBS over the pool", "#0072B2"),
    "ranges": ("D-R-TBS over the pool, keys as ranges", "#56B4E9"),
    "in_process": ("D-R-TBS in this process", "#009E73"),
    "one_thread": ("R-TBS, one thread", "#D55E00"),
}

#: Seconds by id, ``fig7.cent_cp``.
Seconds = Mapping[str, Spread]


def draw(seconds: Seconds, path: Path) -> None:
    """A PNG with a panel per figure."""
    picture, panels = plt.subplots(1, 3, figsize=(16, 4.2), layout="constrained", width_ratios=[1.7, 1, 1.2])
    _variants(panels[0], _of(seconds, "fig7"))
    _workers(panels[1], _of(seconds, "fig8"))
    _batch_sizes(panels[2], _of(seconds, "fig9"))
    for axes in panels:
        axes.set_ylabel("seconds per batch")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=110)
    plt.close(picture)


def _of(seconds: Seconds, figure: str) -> dict[str, Spread]:
    return {name.removeprefix(f"{figure}."): spread for name, spread in seconds.items() if name.startswith(f"{figure}.")}


def _variants(axes: Axes, found: Mapping[str, Spread]) -> None:
    names = [name for name in _NAMES if name in found]
    colours = ["#999999" if name.startswith(("d_ttbs", "one_thread")) else "#333333" for name in names]
    axes.bar(range(len(names)), [found[name].value for name in names], color=colours, width=0.7)
    axes.set_xticks(range(len(names)), [_NAMES[name] for name in names], fontsize=8, rotation=30, ha="right")
    axes.set_yscale("log")
    axes.set_title("by variant (Figure 7)", loc="left", fontsize=10)


def _workers(axes: Axes, found: Mapping[str, Spread]) -> None:
    for ending, label, colour in (("", "a call per batch", "#0072B2"), (".ten", "a call per ten batches", "#56B4E9")):
        counts = sorted(int(name.removesuffix(".ten")) for name in found if name.removesuffix(".ten").isdigit())
        numbers = [n for n in dict.fromkeys(counts) if f"{n}{ending}" in found]
        axes.plot(numbers, [found[f"{n}{ending}"].value for n in numbers], marker="o", label=label, color=colour)
    axes.set_xticks(numbers)
    axes.axhline(found["one_thread"].value, color="#D55E00", linestyle="--", label="R-TBS, one thread")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("workers")
    axes.set_title("by number of workers (Figure 8)", loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=8)


def _batch_sizes(axes: Axes, found: Mapping[str, Spread]) -> None:
    for line, (label, colour) in _LINES.items():
        points = sorted((int(name.rpartition(".")[2]), spread.value) for name, spread in found.items() if name.startswith(line))
        axes.plot(*zip(*points, strict=True), marker="o", label=label, color=colour)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("keys per batch")
    axes.set_title("by size of batches (Figure 9)", loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
