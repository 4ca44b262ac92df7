"""Scores as known and final, where labels arrive later: in tables, in JSON and as series of MLflow."""

from dataclasses import replace

import pytest

from modyn_dagster.catalog.results.evaluations import EvaluationRow
from modyn_dagster.reporting.mlflow.series import composite_points
from modyn_dagster.reporting.mlflow.stream_time import StreamTime
from modyn_dagster.reporting.page.records import with_final_scores
from modyn_dagster.reporting.scores import composite_series
from modyn_dagster.reporting.tables import cell_text
from modyn_dagster.spec.evaluation import lower_is_better
from tests.reporting.story import year
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
