"""Small charts in SVG: well formed whatever they show, with the points where they belong."""

import base64
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.reporting.plots import sketches
from modyn_dagster.reporting.plots.scale import Axes
from modyn_dagster.reporting.plots.svg import Line, bar_chart, line_chart
from tests.reporting.test_plots import a_summary

_NUMBERS = st.floats(-1e12, 1e12, allow_nan=False)
_POINTS = st.lists(st.tuples(_NUMBERS, st.none() | _NUMBERS | st.just(float("nan"))), max_size=20)


def parsed(svg: str | bytes) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314 - ours


def svg_of(markdown: str) -> ElementTree.Element:
    found = re.fullmatch(r"!\[[^\[\]]+\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)", markdown)
    assert found is not None
    return parsed(base64.b64decode(found.group(1)))


def paths(svg: str, colour: str) -> list[str]:
    root = parsed(svg)
    return [str(each.get("d")) for each in root.iter("{http://www.w3.org/2000/svg}path") if each.get("stroke") == colour]


@given(lines=st.lists(_POINTS, max_size=3), title=st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=10))
def test_any_points_give_a_well_formed_picture(lines: list[list[tuple[float, float | None]]], title: str) -> None:
    svg = line_chart(Axes(title, "x", "y"), [Line(f"<{n}>", points, "#0072B2", mark="dot") for n, points in enumerate(lines)])
    texts = [each.text for each in parsed(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert (title or None) in texts


def test_points_lie_where_their_values_are_and_a_missing_one_breaks_the_line() -> None:
    svg = line_chart(Axes("t", "x", "y"), [Line("l", [(0, 0.0), (1, 1.0), (2, None), (3, 0.0), (4, 1.0)], "#0072B2")])
    (path,) = paths(svg, "#0072B2")
    assert re.sub(r"[\d. ]", "", path) == "MLML"
    xs, ys = zip(*[(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)", path)])
    assert xs == tuple(sorted(xs))
    assert ys[0] == ys[2] > ys[1] == ys[3]


def test_bars_are_stacked_from_below() -> None:
    svg = bar_chart(Axes("t", "x", "y"), ["a"], {"one": [1.0], "two": [3.0]}, ["#111111", "#222222"])
    bars = [each for each in parsed(svg).iter("{http://www.w3.org/2000/svg}rect") if each.get("x")]
    (low, high) = [{name: float(str(bar.get(name))) for name in ("y", "height")} for bar in bars]
    assert high["height"] == pytest.approx(3 * low["height"], abs=0.3)
    assert high["y"] + high["height"] == pytest.approx(low["y"], abs=0.2)


def test_every_sketch_is_an_inline_picture() -> None:
    epoch = {"seconds": {"read": 0.5, "forward": 1.0}}
    assert "Training loss" in "".join(svg_of(sketches.loss_sketch([(1, 0.5), (2, 0.25)], [0.3])).itertext())
    assert "forward (2 s)" in "".join(svg_of(sketches.epochs_sketch([epoch, epoch])).itertext())
    assert "3 samples" in "".join(svg_of(sketches.labels_sketch({"a": 1, "b": 2})).itertext())
    assert "currently active" in "".join(svg_of(sketches.scores_sketch(a_summary("p", [None, 0.5, 0.6]))).itertext())
    assert "no interval has a score yet" in "".join(svg_of(sketches.scores_sketch(a_summary("p", [], 0))).itertext())


@pytest.mark.soak("screens")
@pytest.mark.process
def test_sketches_need_no_plotting_library() -> None:
    code = "import sys; import modyn_dagster.reporting.plots.sketches; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
