"""Small charts as SVG text, written in a millisecond: lines over numbers or times, and stacked bars.

For pictures that a run makes by the hundred. Those that a person asks for are drawn by matplotlib (``figures``).
"""

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Final

_WIDTH, _HEIGHT = 960, 390
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 20, 38, 56
_TICKS: Final = 6


@dataclass(frozen=True, slots=True)
class Line:
    """A series of points in order; a value of None breaks the line. ``dots`` marks the points."""

    label: str
    points: Sequence[tuple[float, float | None]]
    colour: str
    dashed: bool = False
    dots: bool = False


@dataclass(frozen=True, slots=True)
class Axes:
    """Title and axes of a chart.

    Attributes:
        title, x_label, y_label: texts.
        times: whether x counts seconds since 1970, shown as moments in UTC.
        y_range: smallest and largest y; default: those of the points.
        note: written into the middle of a chart without points.
    """

    title: str
    x_label: str
    y_label: str
    times: bool = False
    y_range: tuple[float, float] | None = None
    note: str = ""


def line_chart(axes: Axes, lines: Sequence[Line], verticals: Sequence[float] = (), vertical_label: str = "") -> str:
    """Draw lines, and vertical lines behind them."""
    values = [y for line in lines for _, y in line.points if y is not None and math.isfinite(y)]
    places = [x for line in lines for x, _ in line.points] + list(verticals)
    scale = _Scale(axes, places, values)
    parts = [*scale.frame(), *(_vertical(scale, x) for x in verticals)]
    for line in lines:
        parts += _drawn(scale, line)
    entries = [(line.label, line.colour) for line in lines] + ([(vertical_label, "#999999")] if verticals else [])
    return _document(axes, [*parts, *_legend(entries)], empty=not values)


def bar_chart(axes: Axes, names: Sequence[str], stacks: Mapping[str, Sequence[float]], colours: Sequence[str]) -> str:
    """Draw a bar per name; each is a stack of the values of all series, from below."""
    totals = [sum(values[i] for values in stacks.values()) for i in range(len(names))]
    scale = _Scale(axes, [0.5, len(names) + 0.5], [0.0, *totals])
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
    return _document(axes, [*parts, *_legend(entries)], empty=not names)


def svg_markdown(title: str, svg: str) -> str:
    """Encode a chart as an inline image for Dagster's metadata."""
    name = title.replace("[", "(").replace("]", ")")
    return f"![{name}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode('ascii')})"


class _Scale:
    """Places of values in the picture."""

    def __init__(self, axes: Axes, places: Sequence[float], values: Sequence[float]) -> None:
        self._axes = axes
        self._x0, self._x1 = _span(places, 0.02)
        self._y0, self._y1 = axes.y_range or _span(values, 0.05)

    def x(self, value: float) -> float:
        return _LEFT + (value - self._x0) / (self._x1 - self._x0) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (value - self._y0) / (self._y1 - self._y0) * (_HEIGHT - _TOP - _BOTTOM)

    def frame(self, names: Sequence[str] = ()) -> Iterable[str]:
        for value in _ticks(self._y0, self._y1):
            y = self.y(value)
            yield f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#dddddd"/>'
            yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.6g}</text>'
        for value, text in self._x_ticks(names):
            yield f'<text x="{self.x(value):.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{escape(text)}</text>'
        yield f'<path d="M{_LEFT} {_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}" fill="none" stroke="#333333"/>'

    def _x_ticks(self, names: Sequence[str]) -> list[tuple[float, str]]:
        if names:
            step = -(-len(names) // 20)
            return [(i + 1.0, names[i]) for i in range(0, len(names), step)]
        if not self._axes.times:
            return [(value, f"{value:.6g}") for value in _ticks(self._x0, self._x1)]
        pattern = "%Y-%m-%d" if self._x1 - self._x0 > 3 * 86_400 else "%m-%d %H:%M"
        values = [self._x0 + (self._x1 - self._x0) * (i + 0.5) / _TICKS for i in range(_TICKS)]
        return [(value, format(_EPOCH + timedelta(seconds=value), pattern)) for value in values]


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _span(values: Sequence[float], margin: float) -> tuple[float, float]:
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    more = (high - low) * margin or abs(high) * margin or 0.5
    return low - more, high + more


def _ticks(low: float, high: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten between two numbers, at most ten."""
    raw = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    return [round(n * step, 12) for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _drawn(scale: _Scale, line: Line) -> Iterable[str]:
    """Path of a line, and its dots."""
    path, pen, dots = [], "M", []
    for x, y in line.points:
        if y is None or not math.isfinite(y):
            pen = "M"
            continue
        path.append(f"{pen}{scale.x(x):.1f} {scale.y(y):.1f}")
        dots.append(f'<circle cx="{scale.x(x):.1f}" cy="{scale.y(y):.1f}" r="3" fill="{line.colour}"/>')
        pen = "L"
    dashes = ' stroke-dasharray="6 4"' if line.dashed else ""
    yield f'<path d="{"".join(path)}" fill="none" stroke="{line.colour}" stroke-width="1.8"{dashes}/>'
    if line.dots:
        yield from dots


def _vertical(scale: _Scale, x: float) -> str:
    return f'<path d="M{scale.x(x):.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#999999" stroke-dasharray="2 3"/>'


def _legend(entries: Sequence[tuple[str, str]]) -> Iterable[str]:
    """Labels in their colours, beside the title."""
    spans = [f'<tspan fill="{colour}">{escape(label)}</tspan>' for label, colour in entries]
    yield f'<text x="{_WIDTH - _RIGHT}" y="24" text-anchor="end">{" · ".join(spans)}</text>'


def _document(axes: Axes, parts: Iterable[str], *, empty: bool) -> str:
    texts = [
        f'<text x="{_LEFT}" y="24" font-size="17">{escape(axes.title)}</text>',
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 12}" text-anchor="middle">{escape(axes.x_label)}</text>',
        f'<text transform="translate(16 {(_TOP + _HEIGHT - _BOTTOM) / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(axes.y_label)}</text>",
    ]
    if empty and axes.note:
        texts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT / 2}" text-anchor="middle" fill="#555555">{escape(axes.note)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
    body = "".join([*parts, *texts])
    return f'{head} font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="white"/>{body}</svg>'
