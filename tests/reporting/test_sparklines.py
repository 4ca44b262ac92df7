"""Small pictures: well formed, and short enough for Dagster's pages to show them in place."""

from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.reporting.plots.sparklines import sparkbars, sparkline
from tests.reporting.test_sketches import svg_of

_PLACE = "{http://www.w3.org/2000/svg}"
_VALUES = st.lists(st.none() | st.floats(), min_size=1, max_size=200)
_NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=40)


@given(lines=st.dictionaries(_NAMES, _VALUES, min_size=1, max_size=5))
def test_any_lines_are_short_and_well_formed_and_nothing_is_drawn_of_nothing(lines: dict[str, list[float | None]]) -> None:
    text = sparkline("accuracy over time", lines)
    finite = [name for name, values in lines.items() if any(v is not None and abs(v) < float("inf") for v in values)]
    assert bool(text) == bool(finite)
    if text:
        assert len(text) < 1_000
        assert 1 <= len(list(svg_of(text).iter(f"{_PLACE}path"))) <= min(len(finite), 4)


@given(counts=st.dictionaries(_NAMES, st.integers(0, 10**9), min_size=1, max_size=300))
def test_any_bars_are_short_and_well_formed(counts: dict[str, int]) -> None:
    text = sparkbars("Labels", counts)
    assert bool(text) == any(counts.values())
    if text:
        assert len(text) < 1_000
        assert len(list(svg_of(text).iter(f"{_PLACE}text"))) == min(len(counts), 2)


def test_a_line_goes_from_its_first_to_its_last_value_between_the_smallest_and_the_largest() -> None:
    picture = svg_of(sparkline("loss", {"loss": [0.75, None, 0.5, 0.25]}))
    [path] = picture.iter(f"{_PLACE}path")
    assert path.get("d") == "M2 4M233 32 348 60h0"
    assert [text.text for text in picture.iter(f"{_PLACE}text")] == ["0.75", "0.25"]
