"""Intervals that begin before the time up to which a pretrained model may have seen the data are marked."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from modyn_dagster.assets.metadata.evaluations import cells_table
from modyn_dagster.reporting.comparison import compare_runs
from modyn_dagster.reporting.plots.runs import score_over_time
from modyn_dagster.reporting.scores import composite_series
from modyn_dagster.reporting.tables import POSSIBLY_SEEN, comparison_table, scores_table
from modyn_dagster.spec.learning.pretrained import PretrainedSpec
from tests.reporting.story import year
from tests.reporting.test_plots import a_summary
from tests.reporting.test_scores import a_cell, a_model

MODELS = [a_model(0, year(0))]
CELLS = [replace(a_cell(0, start, 0.5), seen_in_training=False) for start in range(1, 5)]


def test_intervals_that_begin_before_the_time_are_marked_and_no_others() -> None:
    series = composite_series(MODELS, CELLS, "accuracy", pretrained_until=year(3))
    assert [score.possibly_seen for score in series.active] == [True, True, False, False]
    assert [score.to_json().get("possibly_seen") for score in series.trained] == [True, True, None, None]
    between = composite_series(MODELS, CELLS, "accuracy", pretrained_until=year(2) + timedelta(seconds=1))
    assert [score.possibly_seen for score in between.active] == [True, True, False, False]
    assert not any(score.possibly_seen for score in composite_series(MODELS, CELLS, "accuracy").active)


def test_tables_show_the_mark_and_what_it_means() -> None:
    series = composite_series(MODELS, CELLS, "accuracy", pretrained_until=year(3))
    run = replace(a_summary("p", []), active=series.active, trained=series.trained, pretrained_until=year(3))
    table = scores_table(run)
    assert [row[1] for row in table.rows] == ["0.5000†", "0.5000†", "0.5000", "0.5000"]
    assert POSSIBLY_SEEN in table.caption
    assert run.to_json()["pretrained_until"] == year(3).isoformat()
    assert "p (until 1903-01-01)" in comparison_table(compare_runs([run])).caption
    labels = score_over_time(run).axes[0].get_legend_handles_labels()[1]
    assert "the pretrained model may have seen these" in labels
    assert "pretrained" not in comparison_table(compare_runs([a_summary("p", [0.5])])).caption
    cells = cells_table(CELLS, ["accuracy"], year(3))
    assert [row[0].endswith(" †") for row in cells.rows] == [True, True, False, False]
    assert POSSIBLY_SEEN in cells.caption
    assert POSSIBLY_SEEN not in cells_table(CELLS, ["accuracy"], None).caption


@pytest.mark.parametrize(
    ("until", "moment"),
    [
        (date(2019, 1, 1), datetime(2019, 1, 1, tzinfo=UTC)),
        (datetime(2019, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), datetime(2019, 1, 1, tzinfo=UTC)),
        (None, None),
    ],
)
def test_a_time_without_a_zone_is_in_utc(until: date | None, moment: datetime | None) -> None:
    assert PretrainedSpec(until=until).seen_until == moment
