"""Figures as files and as Markdown. matplotlib is imported on first use; no window is opened and no state kept."""

from __future__ import annotations

import base64
import io
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from modyn_dagster.imports import require
from modyn_dagster.storage import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


#: Distinguishable in every common kind of colour blindness (Okabe and Ito, 2008), darkest first.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
_WIDTH_INCHES: Final = 12.8
_DPI: Final = 100
#: Characters of an inline image. Dagster stores metadata with every event: an image should not outweigh its page.
MAX_MARKDOWN: Final = 60_000
_MARKDOWN_DPIS: Final = (75, 60, 45, 30)


def new_axes(title: str, x_label: str, y_label: str, *, height: float = 5.2, fitted: bool = False) -> tuple[Figure, Axes]:
    """Create a figure, 1280 px wide when saved, with one pair of axes.

    ``fitted`` makes room for tick labels of any length, and doubles the time.
    """
    require("matplotlib", "a plot")
    from matplotlib.figure import Figure

    # Not pyplot: its figures stay in memory until they are closed.
    figure = Figure(figsize=(_WIDTH_INCHES, height), dpi=_DPI, layout="constrained" if fitted else None)
    if not fitted:
        inches = {"left": 0.9, "right": _WIDTH_INCHES - 0.2, "bottom": 0.7, "top": height - 0.45}
        width = {"left": _WIDTH_INCHES, "right": _WIDTH_INCHES, "bottom": height, "top": height}
        figure.subplots_adjust(**{side: inches[side] / width[side] for side in inches})
    axes = figure.subplots()
    prepare_axes(axes, title, x_label, y_label)
    return figure, axes


def prepare_axes(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    """Set title, labels and a light grid."""
    axes.set_title(title, loc="left", fontsize=14)
    axes.set_xlabel(x_label, fontsize=12)
    axes.set_ylabel(y_label, fontsize=12)
    axes.tick_params(labelsize=11)
    axes.grid(visible=True, color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def style_of(index: int) -> dict[str, Any]:
    """Colour and marker of the n-th series."""
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}


def note(axes: Axes, text: str) -> None:
    """Write in the middle of empty axes why they are empty."""
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, fontsize=13, color="#555555")


def as_markdown(figure: Figure, drawn: bytes | None = None) -> str:
    """Encode a figure as an inline image of at most ``MAX_MARKDOWN`` characters, for Dagster's metadata.

    ``drawn`` is its PNG of the usual size where there is one: it is taken if it is small enough, and saves another drawing.
    """
    name = figure.axes[0].get_title(loc="left").replace("[", "(").replace("]", ")")
    for image in chain([] if drawn is None else [drawn], (_png(figure, dpi) for dpi in _MARKDOWN_DPIS)):
        text = f"![{name}](data:image/png;base64,{base64.b64encode(image).decode('ascii')})"
        if len(text) <= MAX_MARKDOWN:
            break
    return text


def save(figure: Figure, path: Path) -> None:
    """Write a PNG, 1280 px wide; ``WriteFailed`` if the write fails."""
    with atomic_write(path) as file:
        file.write(png(figure))


def png(figure: Figure) -> bytes:
    """Draw a figure as a PNG, 1280 px wide."""
    return _png(figure, _DPI)


def _png(figure: Figure, dpi: int) -> bytes:
    buffer = io.BytesIO()
    # Without version and date, equal figures are equal bytes.
    figure.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
    return buffer.getvalue()


def naive_utc(moment: datetime) -> datetime:
    """Moment in UTC without a time zone, as matplotlib's axes need it."""
    return moment.astimezone(UTC).replace(tzinfo=None)
