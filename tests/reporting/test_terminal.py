"""Tables in terminals: nothing is wider than the terminal, nothing is lost, and words are broken last."""

from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from modyn_dagster.reporting.tables import Table
from modyn_dagster.reporting.terminal import column_widths

WORDS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), min_size=1, max_size=40)
CELLS = st.lists(WORDS, max_size=4).map(" ".join)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    n = draw(st.integers(1, 8))
    rows = draw(st.lists(st.tuples(*[CELLS] * n), max_size=5))
    header = tuple(draw(st.lists(WORDS, min_size=n, max_size=n)))
    return Table(header, tuple(rows), draw(CELLS), draw(CELLS), draw(st.booleans()))


def printed(table: Table, width: int) -> list[str]:
    out = StringIO()
    Console(file=out, width=width).print(table.rich())
    return out.getvalue().splitlines()


def characters(texts: list[str]) -> list[str]:
    return sorted("".join("".join(text.split()) for text in texts))


@given(tables(), st.integers(40, 120))
def test_a_terminal_shows_every_character_and_no_line_is_wider(table: Table, width: int) -> None:
    lines = printed(table, width)
    assert max(map(cell_len, lines)) <= width
    hidden = {i for i in range(len(table.header)) if table.texts and table.rows and not any(row[i] for row in table.rows)}
    shown = [cell for row in (table.header, *table.rows) for i, cell in enumerate(row) if i not in hidden]
    rule = [line for line in lines if set(line.strip()) == {"─"}]
    expected = characters([table.title, *shown, table.caption, *rule])
    assert characters(lines) == expected


@given(st.lists(st.lists(CELLS, min_size=1, max_size=4), min_size=1, max_size=8), st.integers(16, 200))
def test_widths_fit_and_use_what_there_is(columns: list[list[str]], available: int) -> None:
    widths = column_widths(columns, available)
    natural = [max([2, *map(cell_len, cells)]) for cells in columns]
    assert sum(widths) <= available
    assert all(width >= 2 for width in widths)
    if sum(natural) <= available:
        assert widths == natural
    words = [max([2, *(cell_len(word) for cell in cells for word in cell.split())]) for cells in columns]
    if sum(words) <= available and max(words) <= 24:
        assert all(width >= word for width, word in zip(widths, words, strict=True))


@pytest.mark.parametrize(
    ("columns", "available", "widths"),
    [
        ([["pipeline", "every_10_seasons"], ["samples trained on", "56,131"]], 50, [16, 18]),
        # The header gives way before the name, and the short column before the long one.
        ([["pipeline", "every_10_seasons"], ["unbreakableheader", "56,131"]], 24, [16, 8]),
        ([["a", "one two"], ["b", "three four five six seven"]], 17, [7, 10]),
        ([["a", "x" * 100], ["b", "1"]], 30, [28, 2]),
        ([["a", "x" * 10], ["b", "y" * 10]], 8, [4, 4]),
    ],
)
def test_words_stay_whole_as_long_as_they_can(columns: list[list[str]], available: int, widths: list[int]) -> None:
    assert column_widths(columns, available) == widths
