"""Small charts as SVG text, written in a millisecond: lines over numbers or times, and stacked bars.

For pictures that a run makes by the hundred. Those that a person asks for are drawn by matplotlib (``figures``). The background
is white, so they are read on light and on dark pages alike.
"""

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Literal

from modyn_dagster.reporting.plots.scale import BOTTOM, LEFT, RIGHT, TOP, WIDTH, Axes, Scale

Mark = Literal["", "dot", "triangle", "cross"]
#: Path from a point, and style, by mark; ``{}`` is the colour.
_MARKS: Final[Mapping[str, tuple[str, str]]] = {
    "dot": ("h0", 'fill="none" stroke="{}" stroke-width="6" stroke-linecap="round"'),
    "triangle": ("m0-7l7 12h-14z", 'fill="{}"'),
    "cross": ("m-5-5l10 10m0-10l-10 10", 'fill="none" stroke="{}" stroke-width="2"'),
}
_GREY: Final = "#999999"


@dataclass(frozen=True, slots=True)
class Line:
    """A series of points in order; a value of None breaks the line.

    Attributes:
        label: in the legend.
        points: ``(x, y)``.
        colour: of line and marks.
        dashed: whether the line is dashed.
        mark: sign at every point.
        joined: whether a line joins the points.
    """

    label: str
    points: Sequence[tuple[float, float | None]]
    colour: str
    dashed: bool = False
    mark: Mark = ""
    joined: bool = True


@dataclass(frozen=True, slots=True)
class Verticals:
    """Vertical lines behind a chart: their places, label and colour."""

    places: Sequence[float]
    label: str
    colour: str = _GREY


def line_chart(axes: Axes, lines: Sequence[Line], verticals: Verticals | None = None) -> str:
    """Draw lines, and vertical lines behind them."""
    return panel_chart([(axes, lines)], verticals)


def panel_chart(panels: Sequence[tuple[Axes, Sequence[Line]]], verticals: Verticals | None = None) -> str:
    """Draw line charts one below the other, over the same range of x; the first one has the legend."""
    behind = list(verticals.places) if verticals else []
    places = [x for _, lines in panels for line in lines for x, _ in line.points] + behind
    drawn: list[tuple[Axes, Sequence[str]]] = []
    for axes, lines in panels:
        values = [y for line in lines for _, y in line.points if y is not None and math.isfinite(y)]
        scale = Scale(axes, places, values)
        parts = list(scale.frame())
        if verticals and behind:
            parts.append(scale.verticals(behind, verticals.colour))
        for line in lines:
            parts += _line(scale, line)
        entries = [(line.label, line.colour) for line in lines]
        entries += [(verticals.label, verticals.colour)] if verticals and behind else []
        drawn.append((axes, [*parts, *(_legend(entries) if not drawn else ()), *_texts(axes, empty=not values)]))
    return _document(drawn)


def bar_chart(axes: Axes, names: Sequence[str], stacks: Mapping[str, Sequence[float]], colours: Sequence[str]) -> str:
    """Draw a bar per name; each is a stack of the values of all series, from below."""
    totals = [sum(values[i] for values in stacks.values()) for i in range(len(names))]
    scale = Scale(axes, [0.5, len(names) + 0.5], [0.0, *totals])
    parts = list(scale.frame(names))
    below = [0.0] * len(names)
    for number, values in enumerate(stacks.values()):
        for i, value in enumerate(values):
            left, right = scale.x(i + 0.6), scale.x(i + 1.4)
            top, bottom = scale.y(below[i] + value), scale.y(below[i])
            colour = colours[number % len(colours)]
            parts.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}" fill="{colour}"/>'
            )
            below[i] += value
    entries = [(label, colours[number % len(colours)]) for number, label in enumerate(stacks)]
    return _document([(axes, [*parts, *_legend(entries), *_texts(axes, empty=not names)])])


def svg_markdown(title: str, svg: str) -> str:
    """Encode a chart as an inline image for Dagster's metadata."""
    name = title.replace("[", "(").replace("]", ")")
    return f"![{name}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode('ascii')})"


def _line(scale: Scale, line: Line) -> Iterable[str]:
    """Path of a line, and its marks as one more path."""
    path, pen, marked = [], "M", []
    sign, style = _MARKS.get(line.mark, ("", ""))
    values = [None, *(y for _, y in line.points), None]
    for number, (x, y) in enumerate(line.points):
        if y is None or not math.isfinite(y):
            pen = "M"
            continue
        # The middle of a level stretch, as of a fixed threshold, needs no points.
        if not values[number] == y == values[number + 2]:
            path.append(f"{pen}{scale.x(x):.1f} {scale.y(y):.1f}")
        marked.append(f"M{scale.x(x):.1f} {scale.y(y):.1f}{sign}")
        pen = "L"
    dashes = ' stroke-dasharray="6 4"' if line.dashed else ""
    if line.joined:
        yield f'<path d="{"".join(path)}" fill="none" stroke="{line.colour}" stroke-width="1.8"{dashes}/>'
    if line.mark:
        yield f'<path d="{"".join(marked)}" {style.format(line.colour)}/>'


def _legend(entries: Sequence[tuple[str, str]]) -> Iterable[str]:
    """Labels in their colours, beside the title."""
    spans = [f'<tspan fill="{colour}">{escape(label)}</tspan>' for label, colour in entries]
    yield f'<text x="{WIDTH - RIGHT}" y="24" text-anchor="end">{" · ".join(spans)}</text>'


def _texts(axes: Axes, *, empty: bool) -> Iterable[str]:
    """Title, labels, and the note of a chart without points."""
    yield f'<text x="{LEFT}" y="24" font-size="17">{escape(axes.title)}</text>'
    yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{axes.height - 12}" text-anchor="middle">{escape(axes.x_label)}</text>'
    turned = f"translate(16 {(TOP + axes.height - BOTTOM) / 2}) rotate(-90)"
    yield f'<text transform="{turned}" text-anchor="middle">{escape(axes.y_label)}</text>'
    if empty and axes.note:
        yield f'<text x="{WIDTH / 2}" y="{axes.height / 2}" text-anchor="middle" fill="#555555">{escape(axes.note)}</text>'


def _document(charts: Sequence[tuple[Axes, Sequence[str]]]) -> str:
    """One picture of charts below each other."""
    body, height = [], 0
    for axes, parts in charts:
        body.append(f'<g transform="translate(0 {height})">{"".join(parts)}</g>')
        height += axes.height
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    style = 'font-family="sans-serif" font-size="13"'
    return f'{head} {style}><rect width="100%" height="100%" fill="white"/>{"".join(body)}</svg>'
