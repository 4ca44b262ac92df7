"""Scores as known and final, where labels arrive later: in tables, in JSON and as series of MLflow."""

from dataclasses import replace

import numpy as np
import pytest

from modyn_dagster.assets.comparison import comparison_metadata
from modyn_dagster.catalog.results.evaluations import EvaluationRow
from modyn_dagster.reporting.comparison import Comparison, compare_runs
from modyn_dagster.reporting.mlflow.series import composite_points
from modyn_dagster.reporting.mlflow.stream_time import StreamTime
from modyn_dagster.reporting.page.records import with_final_scores
from modyn_dagster.reporting.plots.late_scores import known_and_final
from modyn_dagster.reporting.plots.sketches import scores_svg
from modyn_dagster.reporting.scores import LateScore, composite_series, final_scores
from modyn_dagster.reporting.tables import cell_text
from modyn_dagster.spec.tasks.metrics import lower_is_better
from tests.reporting.story import year
from tests.reporting.test_plots import a_summary
from tests.reporting.test_scores import a_model

CELL = EvaluationRow(1, 0, year(1), year(2), "accuracy", 40, 0.75, None, False)
LATE = replace(CELL, n_labelled=20, final_value=0.8, final_labelled=39, final_arrival=7)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (CELL, "0.7500"),
        (LATE, "0.7500 [50% labelled; final 0.8000, 98%]"),
        (replace(LATE, value=None, undefined="too few"), "too few [50% labelled; final 0.8000, 98%]"),
        (replace(LATE, final_value=None, final_labelled=0), "0.7500 [50% labelled; no final score, 0%]"),
    ],
)
def test_a_cell_shows_its_final_score_beside_the_one_as_known(cell: EvaluationRow, text: str) -> None:
    assert cell_text(cell) == text


def test_composite_models_keep_the_score_as_known_and_tell_the_final_one() -> None:
    models = [a_model(0, year(0))]
    [known] = composite_series(models, [LATE], "accuracy").active
    assert known.value == 0.75
    assert known.to_json()["late"] == {"coverage": 0.5, "final": 0.8, "final_coverage": 0.975}
    [plain] = composite_series(models, [CELL], "accuracy").active
    assert "late" not in plain.to_json()


def test_final_scores_and_coverage_are_series_of_their_own_in_mlflow() -> None:
    models, time = [a_model(0, year(0))], StreamTime.beginning(year(1))
    points = composite_points({"accuracy": composite_series(models, [LATE], "accuracy")}, time, ended=False)
    values = {name: [point.value for point in series] for name, series in points.items()}
    assert values == {
        "evaluation/active accuracy": [0.75],
        "evaluation/active accuracy final": [0.8],
        "evaluation/active label coverage": [0.5],
    }
    plain = composite_points({"accuracy": composite_series(models, [CELL], "accuracy")}, time, ended=False)
    assert list(plain) == ["evaluation/active accuracy"]


def test_the_report_has_final_scores_and_coverage_as_metrics_of_their_own() -> None:
    loss = replace(LATE, metric="log_loss", value=0.5, final_value=None)
    cells = with_final_scores([LATE, loss])
    assert [(cell.metric, cell.value) for cell in cells] == [
        ("accuracy", 0.75),
        ("log_loss", 0.5),
        ("accuracy (final)", 0.8),
        ("log_loss (final)", None),
        ("label coverage", 0.5),
    ]
    assert lower_is_better("log_loss (final)")
    assert with_final_scores([CELL]) == [CELL]


def compared() -> Comparison:
    """Runs of three pipelines: of labels with the samples, of late ones, and of late ones with estimates."""
    plain = a_summary("at_once", [None, 0.5, 0.6])
    late = tuple(replace(score, late=LateScore(0.5, score.value and score.value + 0.1, 1.0)) for score in plain.active)
    waiting = tuple(replace(score, value=None) if n == 2 else score for n, score in enumerate(late))
    estimates = tuple(replace(score, value=0.7, low=0.6, high=0.8, late=None) for score in plain.active)
    wait = replace(plain, pipeline="wait", active=waiting)
    return compare_runs([plain, wait, replace(plain, pipeline="estimate", active=late, estimated=estimates)])


def test_every_run_has_a_panel_with_its_scores_as_known_final_and_estimated() -> None:
    panels = known_and_final(compared().runs).axes
    assert [axes.get_title(loc="left") for axes in panels] == ["at_once", "wait", "estimate"]
    drawn = [{str(line.get_label()): np.asarray(line.get_ydata(), float) for line in axes.lines} for axes in panels]
    assert [{"as known", "final", "estimated"} & lines.keys() for lines in drawn] == [
        {"as known"},
        {"as known", "final"},
        {"as known", "final", "estimated"},
    ]
    np.testing.assert_array_equal(drawn[1]["as known"], [np.nan, 0.5, np.nan])
    np.testing.assert_allclose(drawn[1]["final"], [np.nan, 0.6, 0.7])
    np.testing.assert_array_equal(drawn[2]["estimated"], [0.7] * 3)
    # Heights can be compared from panel to panel.
    assert len({axes.get_ylim() for axes in panels}) == 1


def test_the_plot_of_a_run_in_dagster_and_mlflow_has_a_line_of_the_final_scores() -> None:
    plain, wait, _ = (run.summary for run in compared().runs)
    assert "with the labels so far" in scores_svg(wait)
    assert "with the labels so far" not in scores_svg(plain)
    assert final_scores(plain.active) == []
    assert [score.value for score in final_scores(wait.active)] == [None, 0.6, 0.7]


@pytest.mark.soak("screens")
def test_the_comparison_in_dagster_shows_scores_as_known_and_final_where_labels_arrive_later() -> None:
    assert "as known and final" in comparison_metadata(compared())
    assert "as known and final" not in comparison_metadata(compare_runs([compared().runs[0].summary]))
