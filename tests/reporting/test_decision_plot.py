"""Scores and thresholds of decisions, as pictures and as series in MLflow."""

import math
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

from modyn_dagster.catalog.decisions import DecisionRow
from modyn_dagster.catalog.results.training_sets import FillPoint
from modyn_dagster.reporting.mlflow.series import decision_series
from modyn_dagster.reporting.plots.decisions import decision_scores, fill_over_time, scores_and_thresholds

START = datetime(1960, 1, 1, tzinfo=UTC)
SVG = "{http://www.w3.org/2000/svg}"


def decision(day: float, score: float | None, threshold: float | None = 0.5, **details) -> DecisionRow:
    fire = score is not None and threshold is not None and score >= threshold
    return DecisionRow(1, int(day), int(day), START + timedelta(days=day), fire, "because", score, threshold, details)


def metrics(**scores: float | None):
    return {name: {"fire": False, "score": score, "threshold": 0.5, "reason": "r"} for name, score in scores.items()}


def texts(svg: str) -> list[str | None]:
    return [each.text for each in ElementTree.fromstring(svg).iter() if each.tag in (f"{SVG}text", f"{SVG}tspan")]  # noqa: S314 - ours


def drawn(svg: str, colour: str) -> list[str]:
    """Paths of a colour."""
    root = ElementTree.fromstring(svg)  # noqa: S314 - ours
    return [str(each.get("d")) for each in root.iter(f"{SVG}path") if colour in (each.get("stroke"), each.get("fill"))]


def test_scores_are_found_by_what_they_are_of():
    rows = [
        decision(0, None),
        decision(1, 0.2, metrics=metrics(mmd=0.2, ks=None)),
        decision(2, 2.0, 1.0, members={"drift": {"score": 0.3, "threshold": None, "details": {"metrics": metrics(ks=0.7)}}}),
    ]
    found = decision_scores(rows)
    assert {name: [(s.score, s.threshold) for s in scores] for name, scores in found.items()} == {
        "score": [(0.2, 0.5), (2.0, 1.0)],
        "mmd": [(0.2, 0.5)],
        "drift": [(0.3, None)],
        "drift/ks": [(0.7, 0.5)],
    }


def test_the_picture_has_score_threshold_and_triggers():
    rows = [decision(day, value, None if day < 3 else 0.5) for day, value in enumerate([0.1, 0.2, 0.3, 0.7, 0.2])]
    svg = scores_and_thresholds(rows, title="live run 1 of p")
    assert {"live run 1 of p", "score", "threshold", "a trigger"} <= set(texts(svg))
    score, marks = drawn(svg, "#0072B2")
    assert (score.count("L"), marks.count("h0")) == (4, 5)
    [threshold] = drawn(svg, "#D55E00")
    assert threshold.count("L") == 1, "there is no line where there was no threshold"
    [fired] = drawn(svg, "#009E73")
    assert fired.split()[0] == "M" + marks.split("M")[4].split()[0], "where the fourth score is"


def test_the_axis_of_a_short_time_says_what_year_it_was():
    svg = scores_and_thresholds([decision(day / 24, 0.1) for day in range(3)], title="t")
    assert "sample time (UTC), 1960-01-01 to 1960-01-01" in texts(svg)


def test_a_picture_of_many_scores_is_bounded_and_of_none_says_so():
    many = [
        decision(day, math.sin(day), metrics=metrics(**{f"m{i}": math.cos(i * day) for i in range(20)})) for day in range(500)
    ]
    svg = scores_and_thresholds(many, title="t")
    assert ElementTree.fromstring(svg).get("height") == "1560", "six panels"  # noqa: S314 - ours
    assert len(svg) < 45_000
    assert "no decision was taken from a score yet" in texts(scores_and_thresholds([decision(0, None)], title="t"))


def test_the_fill_of_a_sample_shows_what_was_trained_on_and_what_was_skipped():
    fills = [FillPoint(ordinal, START + timedelta(days=day), fill, skipped) for day, ordinal, fill, skipped in FILLS]
    svg = fill_over_time(fills, min_fill=0.5, title="t")
    assert {"fill", "min_fill", "trained on", "skipped"} <= set(texts(svg))
    [trained], [skipped] = drawn(svg, "#009E73"), drawn(svg, "#CC79A7")
    assert (trained.count("M"), skipped.count("M")) == (2, 1)
    assert "nothing was taken in yet" in texts(fill_over_time([], min_fill=0.5, title="t"))


#: Day, trigger, fill, and whether the trigger was skipped.
FILLS = [(0, 0, 0.2, True), (1, 0, 0.4, True), (2, 1, 0.6, False), (3, 2, 0.7, False), (4, 2, 0.8, False)]


def test_curves_count_from_400_years_later_where_the_first_decision_is_before_1970():
    rows = [decision(0, 0.1, None), decision(1, float("inf")), decision(2, 0.9)]
    series = decision_series(rows)
    day, begin = 86_400_000, int(datetime(2360, 1, 1, tzinfo=UTC).timestamp()) * 1000
    assert series == {
        "decision/score": [(1960_000, begin, 0.1), (1960_005, begin + 2 * day, 0.9)],
        "decision/threshold": [(1960_003, begin + day, 0.5), (1960_005, begin + 2 * day, 0.5)],
    }
    later = [DecisionRow(1, 0, 0, datetime(1970, 1, 2, tzinfo=UTC), False, "r", 0.1, None, {})]
    assert decision_series(later) == {"decision/score": [(1970_003, day, 0.1)]}
    assert decision_series([]) == {}
