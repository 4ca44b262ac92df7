"""Scores and thresholds of decisions, as plots and as series in MLflow."""

from datetime import UTC, datetime, timedelta

import numpy as np

from modyn_dagster.catalog.decisions import DecisionRow
from modyn_dagster.reporting.mlflow.series import decision_series
from modyn_dagster.reporting.plots.decisions import decision_scores, scores_and_thresholds
from modyn_dagster.reporting.plots.figures import as_markdown

START = datetime(1960, 1, 1, tzinfo=UTC)


def decision(day: int, score: float | None, threshold: float | None = 0.5, **details) -> DecisionRow:
    fire = score is not None and threshold is not None and score >= threshold
    return DecisionRow(1, day, day, START + timedelta(days=day), fire, "because", score, threshold, details)


def metrics(**scores: float | None):
    return {name: {"fire": False, "score": score, "threshold": 0.5, "reason": "r"} for name, score in scores.items()}


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
    figure = scores_and_thresholds(rows, title="live run 1 of p")
    [axes] = figure.axes
    score, threshold, fired = axes.lines
    np.testing.assert_array_equal(score.get_ydata(), [0.1, 0.2, 0.3, 0.7, 0.2])
    np.testing.assert_array_equal(threshold.get_ydata(), [np.nan, np.nan, np.nan, 0.5, 0.5])
    assert list(axes.get_legend_handles_labels()[1]) == ["score", "threshold", "a trigger"]
    assert np.size(fired.get_xdata()) == 2
    assert as_markdown(figure).startswith("![live run 1 of p](data:image/png;base64,")


def test_the_axis_of_a_short_time_says_what_year_it_was():
    [axes] = scores_and_thresholds([decision(day, 0.1) for day in range(3)], title="t").axes
    assert axes.get_xlabel() == "sample time (UTC), 1960-01-01 to 1960-01-03"


def test_a_picture_of_many_scores_is_bounded_and_of_none_says_so():
    many = [decision(0, 0.1, metrics=metrics(**{f"m{i}": 0.1 for i in range(20)}))]
    assert len(scores_and_thresholds(many, title="t").axes) == 6
    [axes] = scores_and_thresholds([decision(0, None)], title="t").axes
    assert "no decision was taken from a score yet" in [text.get_text() for text in axes.texts]


def test_curves_count_from_the_first_decision_where_that_is_before_1970():
    rows = [decision(0, 0.1, None), decision(1, float("inf")), decision(2, 0.9)]
    day = 86_400_000
    assert decision_series(rows) == {
        "decision/score": [(0, 0, 0.1), (2, 2 * day, 0.9)],
        "decision/threshold": [(1, day, 0.5), (2, 2 * day, 0.5)],
    }
    later = [DecisionRow(1, 0, 0, datetime(1970, 1, 2, tzinfo=UTC), False, "r", 0.1, None, {})]
    assert decision_series(later) == {"decision/score": [(0, day, 0.1)]}
    assert decision_series([]) == {}
