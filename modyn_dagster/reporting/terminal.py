"""Tables in a terminal of any width: every cell is shown whole, and words and names are broken only where nothing else helps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

#: Longest word that a column is made wide enough for; names of pipelines in examples and docs are shorter.
_LONGEST_WORD: Final = 24
#: Characters between two columns.
_GAP: Final = 2
#: Narrowest column: some characters take two places.
_NARROWEST: Final = 2


@dataclass(frozen=True, slots=True)
class TerminalTable:
    """A table of texts that rich prints in the width it is given.

    Attributes:
        header, rows: cells; every row has as many as the header.
        title, caption: above and below.
        right: numbers of the columns that are aligned right.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str
    caption: str
    right: frozenset[int]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Lay the table out; called by rich."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        available = options.max_width - _GAP * (len(self.header) - 1)
        widths = column_widths([*zip(self.header, *self.rows, strict=True)], available)
        # A column's padding and the divider, which is a space, are the gap.
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for index, (name, width) in enumerate(zip(self.header, widths, strict=True)):
            table.add_column(Text(name), width=width, justify="right" if index in self.right else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*map(Text, row))  # as text: brackets are not markup
        if self.title:
            yield Text(self.title, style="bold")
        yield table
        if self.caption:
            yield Text(self.caption)


def column_widths(columns: Sequence[Sequence[str]], available: int) -> list[int]:
    """Widths of columns, in characters of a terminal, that add up to at most ``available``.

    Columns are as wide as their longest line where all are. Otherwise each gets room for its longest word, as far as possible,
    and what remains goes first to those that need the least of it to stay on one line.

    Args:
        columns: cells of each column, the header first.
        available: characters of all columns together; at least two for each.

    >>> column_widths([["pipeline", "every_10_seasons"], ["samples trained on", "56,131"]], 30)
    [16, 14]
    """
    lines = [max(_longest(cell.splitlines()) for cell in cells) for cells in columns]
    if sum(lines) <= available:
        return lines
    # Headers give way before the cells do.
    for words in (_words(columns), _words([cells[1:] for cells in columns])):
        if sum(words) <= available:
            return _grown(words, lines, available)
    return _shrunk(words, available)


def _words(columns: Sequence[Sequence[str]]) -> list[int]:
    return [min(max((_longest(cell.split()) for cell in cells), default=_NARROWEST), _LONGEST_WORD) for cells in columns]


def _longest(parts: Sequence[str]) -> int:
    from rich.cells import cell_len

    return max([_NARROWEST, *map(cell_len, parts)])


def _grown(widths: list[int], wanted: Sequence[int], available: int) -> list[int]:
    rest = available - sum(widths)
    order = sorted(range(len(widths)), key=lambda i: wanted[i] - widths[i])
    for done, i in enumerate(order):
        more = min(max(wanted[i] - widths[i], 0), rest // (len(order) - done))
        widths[i] += more
        rest -= more
    return widths


def _shrunk(widths: list[int], available: int) -> list[int]:
    while sum(widths) > available and max(widths) > _NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths
