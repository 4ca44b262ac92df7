"""Axes of small charts: places of values in a picture, ticks, and the frame around them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Final

WIDTH: Final = 960
HEIGHT: Final = 390
LEFT, RIGHT, TOP, BOTTOM = 76, 20, 38, 56
_TICKS: Final = 6
_MOST_NAMES: Final = 20
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Axes:
    """Title and axes of a chart.

    Attributes:
        title, x_label, y_label: texts.
        times: whether x counts seconds since 1970, shown as moments in UTC.
        y_range: smallest and largest y; default: those of the points.
        note: written into the middle of a chart without points.
        height: in pixels.
    """

    title: str
    x_label: str
    y_label: str
    times: bool = False
    y_range: tuple[float, float] | None = None
    note: str = ""
    height: int = HEIGHT


class Scale:
    """Places of values in a picture."""

    def __init__(self, axes: Axes, places: Sequence[float], values: Sequence[float]) -> None:
        self._axes = axes
        self._x0, self._x1 = _span(places, 0.02)
        self._y0, self._y1 = axes.y_range or _span(values, 0.05)
        self._bottom = axes.height - BOTTOM

    def x(self, value: float) -> float:
        """Pixels from the left."""
        return LEFT + (value - self._x0) / (self._x1 - self._x0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Pixels from the top."""
        return self._bottom - (value - self._y0) / (self._y1 - self._y0) * (self._bottom - TOP)

    def verticals(self, values: Sequence[float], colour: str) -> str:
        """Draw dotted lines through all of the chart at places on the x-axis, as one path."""
        path = "".join(f"M{self.x(value):.1f} {TOP}V{self._bottom}" for value in values)
        return f'<path d="{path}" stroke="{colour}" stroke-dasharray="2 3"/>'

    def frame(self, names: Sequence[str] = ()) -> Iterable[str]:
        """Draw axes, ticks and grid; ``names`` stand in for numbers at 1, 2, … on the x-axis."""
        for value in _ticks(self._y0, self._y1):
            y = self.y(value)
            yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#dddddd"/>'
            yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.6g}</text>'
        for value, text in self._x_ticks(names):
            yield f'<text x="{self.x(value):.1f}" y="{self._bottom + 20}" text-anchor="middle">{escape(text)}</text>'
        yield f'<path d="M{LEFT} {TOP}V{self._bottom}H{WIDTH - RIGHT}" fill="none" stroke="#333333"/>'

    def _x_ticks(self, names: Sequence[str]) -> list[tuple[float, str]]:
        if names:
            step = -(-len(names) // _MOST_NAMES)
            return [(i + 1.0, names[i]) for i in range(0, len(names), step)]
        if not self._axes.times:
            return [(value, f"{value:.6g}") for value in _ticks(self._x0, self._x1)]
        pattern = "%Y-%m-%d" if self._x1 - self._x0 > 3 * 86_400 else "%m-%d %H:%M"
        values = [self._x0 + (self._x1 - self._x0) * (i + 0.5) / _TICKS for i in range(_TICKS)]
        return [(value, format(_EPOCH + timedelta(seconds=value), pattern)) for value in values]


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
