"""Reports hold the numbers of the catalog."""

import secrets

import numpy as np
import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.errors import ConfigError
from modyn_dagster.reporting.page.data import ReportData
from modyn_dagster.reporting.page.records import read_report
from tests.reporting.story import Story, year


def report_of(engine: sa.Engine, *pipelines: str, metric: str | None = None) -> ReportData:
    with engine.begin() as conn:
        return read_report(conn, pipelines, title="t", metric=metric)


def named() -> str:
    return f"p_{secrets.token_hex(4)}"


def test_a_run_comes_with_models_cells_seconds_and_failures(shared_engine: sa.Engine, story: Story) -> None:
    first, _ = story.train(10, year(1.5), n_samples=7), story.fail(20)
    second = story.train(30, year(3.5), n_samples=9)
    story.score(first, {1: 0.5, 2: 0.25, 3: None})
    story.score(second, {2: 0.75})
    report = report_of(shared_engine, story.pipeline, "never_ran")
    [record] = report.pipelines
    assert report.missing == ("never_ran",)
    assert report.metrics == ("accuracy", "log_loss")
    assert report.starts.tolist() == [as_datetime64(year(n)).item() for n in (1, 2, 3)]
    np.testing.assert_array_equal(record.matrices["accuracy"], [[0.5, 0.25, np.nan], [np.nan, 0.75, np.nan]])
    assert np.isnan(record.matrices["log_loss"]).all()
    assert record.train_ends.tolist() == [as_datetime64(year(n)).item() for n in (1.5, 3.5)]
    assert (record.n_samples.tolist(), record.n_failed, record.label) == ([7, 9], 1, story.pipeline)
    assert record.seconds["train"].tolist() == [2.0, 2.0]
    assert record.total_seconds == 5.25


def test_replays_of_other_seeds_stand_beside_the_newest(shared_engine: sa.Engine) -> None:
    name = named()
    for seed in (1, 0):
        story = Story(shared_engine, name, seed=seed)
        story.score(story.train(10, year(1.5)), {2: 0.5 + seed / 4})
    report = report_of(shared_engine, name)
    assert [record.label for record in report.pipelines] == [f"{name} (seed 0)", f"{name} (seed 1)"]
    assert {record.group for record in report.pipelines} == {name}
    assert [record.matrices["accuracy"].tolist() for record in report.pipelines] == [[[0.5]], [[0.75]]]


def test_the_anchor_is_the_one_that_the_pipeline_asks_for(shared_engine: sa.Engine) -> None:
    story = Story(shared_engine, named(), intervals={"kind": "tumbling", "every": "1y", "anchor": "center"})
    story.score(story.train(10, year(1.25)), {1: 0.5})
    assert report_of(shared_engine, story.pipeline).anchors.tolist() == [as_datetime64(year(1.5)).item()]


def test_a_run_without_a_trigger_and_no_run_at_all_are_reports_too(shared_engine: sa.Engine, story: Story) -> None:
    report = report_of(shared_engine, story.pipeline)
    assert (len(report.starts), len(report.pipelines[0].train_ends)) == (0, 0)
    assert report_of(shared_engine, named()).pipelines == ()


def test_metrics_that_are_not_common_are_refused(shared_engine: sa.Engine, story: Story) -> None:
    other = Story(shared_engine, named(), metrics=["roc_auc"])
    with pytest.raises(ConfigError, match="must have one metric in common"):
        report_of(shared_engine, story.pipeline, other.pipeline)
    assert report_of(shared_engine, story.pipeline, metric="log_loss").metrics == ("log_loss", "accuracy")
