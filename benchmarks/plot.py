"""Bars of throughput relative to reading files in order, in the manner of Modyn's Figures 15 and 16, out of the benchmark's JSON.

``python benchmarks/plot.py throughput.json docs/images/throughput.png``: on the left samples a second of every contender for
160-byte rows (logarithmic), the sequential scan in grey; on the right what training reaches of the same loop on that scan.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import matplotlib

from benchmarks.report import short

matplotlib.use("Agg")

from matplotlib import pyplot as plt

#: Ids of the JSON and their names under the bars.
_READING: Final = (
    ("rows.ours_2_threads", "ours\n2 threads"),
    ("rows.ours_1_thread", "ours\n1 thread"),
    ("rows.np.take", "np.take"),
    ("rows.scan", "sequential\nscan"),
    ("rows.lance", "Lance"),
    ("rows.lmdb", "LMDB"),
    ("rows.array_record", "array_record"),
    ("rows.modyn", "per-sample\nscan (Modyn)"),
    ("rows.mosaicml", "MosaicML"),
    ("rows.hf", "HF datasets"),
    ("rows.litdata", "LitData"),
)
_TRAINING: Final = (
    ("F8", "DLRM\nCPU"),
    ("F8.cuda", "DLRM\nCUDA"),
    ("F8b", "ResNet-18\nCPU"),
    ("F8b.cuda", "ResNet-18\nCUDA"),
)
#: What Modyn reports for Criteo with 1, 4, 8 and 16 workers (Figure 16a), against its per-sample scan.
_MODYN: Final = (98.0, 85.4, 77.8, 71.0)
_OURS, _BASE, _OTHERS = "#1f6f8b", "#9a9a9a", "#d9a441"

Figures = Mapping[str, Mapping[str, Any]]


def draw(figures: Figures, path: Path) -> None:
    """Write the plot as PNG. Figures that were not measured are left out."""
    picture, (left, right) = plt.subplots(1, 2, figsize=(13, 4.6), width_ratios=(2.4, 1), layout="constrained")
    _reading(left, figures)
    _training(right, figures)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=130)
    plt.close(picture)


def _reading(axes: Any, figures: Figures) -> None:
    bars = [(name, figures[key]) for key, name in _READING if _measured(figures, key)]
    colours = [_BASE if "scan" in name else _OURS if name.startswith("ours") else _OTHERS for name, _ in bars]
    _bars(axes, bars, colours, [short(bar["value"]) for _, bar in bars])
    axes.set_yscale("log")
    axes.set_ylabel("samples/s")
    axes.set_title("160-byte rows, random keys, batches of 65,536 (scans: file order)", fontsize=10)
    if _measured(figures, "rows.scan"):
        axes.axhline(figures["rows.scan"]["value"], color=_BASE, linewidth=1, linestyle="--")


def _training(axes: Any, figures: Figures) -> None:
    bars = [(name, _percent(figures[key])) for key, name in _TRAINING if _measured(figures, key)]
    published = [(f"Modyn\n{n} w.", {"value": value, "min": value, "max": value}) for n, value in zip((1, 4, 8, 16), _MODYN)]
    colours = [_OURS] * len(bars) + [_OTHERS] * len(published)
    both = [*bars, *published]
    _bars(axes, both, colours, [f"{bar['value']:.0f} %" for _, bar in both])
    axes.axhline(100, color=_BASE, linewidth=1, linestyle="--")
    axes.set_ylim(0, 1.25 * max(100.0, *(bar["max"] for _, bar in both)))
    axes.set_ylabel("% of the loop on a sequential scan")
    axes.set_title("training, keyed and shuffled\n(Modyn as published: DLRM, of a per-sample scan)", fontsize=10)


def _bars(axes: Any, bars: Sequence[tuple[str, Mapping[str, float]]], colours: Sequence[str], texts: Sequence[str]) -> None:
    values = [bar["value"] for _, bar in bars]
    spans = [[bar["value"] - bar["min"] for _, bar in bars], [bar["max"] - bar["value"] for _, bar in bars]]
    drawn = axes.bar([name for name, _ in bars], values, color=colours, yerr=spans, capsize=3, ecolor="#333333")
    axes.bar_label(drawn, texts, padding=3, fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _percent(bar: Mapping[str, Any]) -> dict[str, float]:
    return {name: 100 * bar[name] for name in ("value", "min", "max")}


def _measured(figures: Figures, key: str) -> bool:
    return key in figures and figures[key]["value"] is not None


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Draw the throughput benchmark's JSON.")
    parser.add_argument("json", type=Path)
    parser.add_argument("png", type=Path)
    options = parser.parse_args()
    draw(json.loads(options.json.read_text(encoding="utf-8")), options.png)


if __name__ == "__main__":
    main()
