"""Pictures so small that Dagster's pages show them in place: Markdown of fewer than 1,000 characters."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from modyn_dagster.reporting.plots.figures import COLOURS
from modyn_dagster.reporting.plots.svg import svg_markdown

#: Dagster hides longer Markdown behind a button.
_MOST_CHARACTERS: Final = 999
_WIDTH, _HEIGHT = 420, 64
#: Room for numbers, or for names, at the right.
_NUMBERS, _NAMES = 70, 150
_MOST_POINTS: Final = 60
_FEWEST_POINTS: Final = 4
_MOST_LINES: Final = 4
_MOST_TITLE: Final = 40
_MOST_NAME: Final = 18


def sparkline(title: str, lines: Mapping[str, Sequence[float | None]]) -> str:
    """Draw lines over equal steps, with the smallest and the largest value; names stand beside them where there are several.

    A missing value breaks its line. Long series are thinned to what fits; of many lines the first ones are drawn, four at most.

    Args:
        title: read aloud in place of the picture.
        lines: values by name, one series at least with a finite value; all of the same scale.

    Returns:
        Markdown; empty if no value is finite.
    """
    drawn = [(name, series) for name, series in lines.items() if any(map(_is_finite, series))]
    shown = dict(drawn[:_MOST_LINES])
    values = [value for series in shown.values() for value in series if value is not None and math.isfinite(value)]
    if not values:
        return ""
    n_points = _MOST_POINTS
    while n_points >= _FEWEST_POINTS:
        text = svg_markdown(title[:_MOST_TITLE], _lines_svg(shown, min(values), max(values), n_points))
        if len(text) <= _MOST_CHARACTERS:
            return text
        n_points = n_points * 3 // 4
    return sparkline(title, dict(drawn[: len(shown) - 1]))


def sparkbars(title: str, counts: Mapping[str, int]) -> str:
    """Draw a bar per name, in the given order, with the first and the last name; neighbours are added up where there are many.

    Returns:
        Markdown; empty if nothing was counted.
    """
    heights = [float(count) for count in counts.values()]
    if not any(heights):
        return ""
    names = list(counts)
    ends = f'<text y="62">{_short(names[0])}</text>'
    if len(names) > 1:
        ends += f'<text x="{_WIDTH - _NUMBERS}" y="62" text-anchor="end">{_short(names[-1])}</text>'
    group = -(-len(heights) // _MOST_POINTS)
    while True:
        sums = [sum(heights[i : i + group]) for i in range(0, len(heights), group)]
        text = svg_markdown(title[:_MOST_TITLE], _document([_bars(sums), ends]))
        if len(text) <= _MOST_CHARACTERS:
            return text
        group += 1


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _lines_svg(lines: Mapping[str, Sequence[float | None]], low: float, high: float, n_points: int) -> str:
    longest = max(len(series) for series in lines.values())
    step = max(1, -(-longest // n_points))
    width = _WIDTH - (_NUMBERS if len(lines) == 1 else _NAMES)
    frame = _Frame(width - 4, low, high, longest)
    parts = [frame.path(series, step, COLOURS[number]) for number, series in enumerate(lines.values())]
    if len(lines) > 1:
        texts = [(12 + 15 * number, _short(name), f' fill="{COLOURS[number]}"') for number, name in enumerate(lines)]
    elif high > low:
        texts = [(12, f"{high:.4g}", ""), (_HEIGHT - 4, f"{low:.4g}", "")]
    else:
        texts = [(_HEIGHT // 2 + 4, f"{low:.4g}", "")]
    return _document([*parts, *(f'<text x="{width + 6}" y="{y}"{fill}>{text}</text>' for y, text, fill in texts)])


@dataclass(frozen=True, slots=True)
class _Frame:
    """Place of ``longest`` values between ``low`` and ``high`` in the picture."""

    width: int
    low: float
    high: float
    longest: int

    def path(self, series: Sequence[float | None], step: int, colour: str) -> str:
        places, pen = [], "M"
        for i in [*range(0, len(series) - 1, step), len(series) - 1]:
            value = series[i]
            if value is None or not math.isfinite(value):
                pen = "M"
                continue
            places.append(f"{pen}{round(2 + self.width * i / max(1, self.longest - 1))} {self._y(value)}")
            # After a move, further pairs of numbers are lines.
            pen = " "
        # A line of no length at the end, whose round cap is all there is to see of a single value.
        return f'<path d="{"".join(places)}h0" fill="none" stroke="{colour}" stroke-width="2" stroke-linecap="round"/>'

    def _y(self, value: float) -> int:
        # Halves first: the difference of two large numbers may be infinite.
        height = self.high / 2 - self.low / 2
        return round(4 + (_HEIGHT - 8) * ((self.high / 2 - value / 2) / height)) if height > 0 else _HEIGHT // 2


def _bars(sums: Sequence[float]) -> str:
    wide, tallest = (_WIDTH - _NUMBERS) / len(sums), max(sums)
    bars = (f"M{round(i * wide)} 48v-{round(46 * each / tallest)}h{max(1, round(wide) - 1)}V48z" for i, each in enumerate(sums))
    return f'<path d="{"".join(bars)}" fill="{COLOURS[0]}"/>'


def _short(name: str) -> str:
    return escape(name if len(name) <= _MOST_NAME else name[: _MOST_NAME - 1] + "…")


def _document(parts: Iterable[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" font-family="sans-serif" font-size="12"'
    return f'{head} fill="#888">{"".join(parts)}</svg>'
