"""Figures as they are reported: a table to read, and JSON that maps each id to value, unit, min, max and goal."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Machine, Spread

#: What is divided by where nothing was needed of what there was a limit of.
_NOTHING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number.

    Attributes:
        id: ``F1``; a part of a figure adds a name, ``F6.lance``.
        what: a few words for the table.
        spread: median, smallest and largest; None where it could not be measured.
        unit: of the spread; ``x`` is a ratio.
        goal: to reach; None for a number that only informs.
        at_most: the goal is an upper limit, not a lower one.
        note: conditions, or why there is no spread.
    """

    id: str
    what: str
    spread: Spread | None
    unit: str
    goal: float | None = None
    at_most: bool = False
    note: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether the median reaches the goal; None without a goal or a measurement."""
        if self.goal is None or self.spread is None:
            return None
        return self.spread.value <= self.goal if self.at_most else self.spread.value >= self.goal

    @property
    def over_goal(self) -> Spread | None:
        """How many times its goal it reaches, 1 or more where it does; None without a goal or a measurement."""
        if self.goal is None or self.spread is None:
            return None
        value, low, high = self.spread.value, self.spread.min, self.spread.max
        if not self.at_most:
            return Spread(value / self.goal, low / self.goal, high / self.goal)
        return Spread(*(self.goal / max(each, _NOTHING) for each in (value, high, low)))

    def as_json(self) -> dict[str, Any]:
        """The five fields of the JSON; a figure that could not be measured has null values."""
        spread = self.spread
        values = (None, None, None) if spread is None else (spread.value, spread.min, spread.max)
        return {"value": values[0], "unit": self.unit, "min": values[1], "max": values[2], "goal": self.goal}


def with_least(figure: str, parts: Iterable[Figure]) -> Iterator[Figure]:
    """The parts of a figure that have goals of their own (``F9.warm``), then the figure itself: its least part over its goal."""
    with_goal, shares = 0, []
    for part in parts:
        yield part
        if part.id.startswith(f"{figure}.") and part.goal is not None:
            with_goal += 1
            shares += [part.over_goal] if part.over_goal is not None else []
    least = min(shares, key=lambda share: share.value, default=None)
    note = f"{len(shares)} of {with_goal} parts were measured"
    yield Figure(figure, "the least of its parts, each over its goal", least, "x", 1.0, note=note)


def busyness(machine: Machine) -> list[Figure]:
    """How busy the machine was, as figures: load average and foreign runnable processes, where rounds were measured."""
    seen = [
        ("load", "load average around the rounds", machine.load),
        ("foreign", "foreign runnable processes", [float(n) for n in machine.foreign]),
    ]
    return [Figure(name, what, Spread.of(values), "processes") for name, what, values in seen if values]


def write_json(path: Path, figures: Iterable[Figure]) -> None:
    """Map each id to ``{value, unit, min, max, goal}``."""
    by_id: Mapping[str, Any] = {figure.id: figure.as_json() for figure in figures}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(by_id, indent=2) + "\n", encoding="utf-8")


def print_table(figures: Iterable[Figure], title: str) -> None:
    """One line per figure."""
    table = Table("id", "what", "median", "min to max", "goal", "", "note", title=title, title_justify="left")
    for figure in figures:
        spread, sign = figure.spread, "≤" if figure.at_most else "≥"
        table.add_row(
            figure.id,
            figure.what,
            "-" if spread is None else f"{short(spread.value)} {figure.unit}",
            "-" if spread is None else f"{short(spread.min)} to {short(spread.max)}",
            "" if figure.goal is None else f"{sign} {short(figure.goal)}",
            {True: "[green]yes", False: "[red]no", None: ""}[figure.reached],
            figure.note,
        )
    Console(width=None if os.isatty(1) else 200).print(table)
    sys.stdout.flush()


def short(value: float) -> str:
    """Three significant digits, with k, M or G."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
