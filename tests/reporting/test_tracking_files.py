"""Plots and tables beside a run in MLflow, where there is a place for them."""

import json
from pathlib import Path

import pytest

from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.mlflow.tracker import Tracker
from tests.reporting.story import Story, step, year


def files_of(root: Path, story: Story, run_id: str) -> Path:
    return root / story.pipeline / run_id / "artifacts"


@pytest.fixture
def scored(story: Story) -> Story:
    story.score(story.train(10, year(1.5)), {1: 0.9, 2: 0.8, 3: 0.7})
    return story


def test_a_pipelines_run_has_its_plot_its_summary_and_its_intervals(tracker: Tracker, scored: Story, tmp_path: Path) -> None:
    folder = files_of(tmp_path / "artifacts", scored, tracker.sync_run(scored.engine, scored.run))
    assert (folder / "score_over_time.svg").read_text().startswith("<svg")
    summary = json.loads((folder / "summary.json").read_text())
    assert [score["value"] for score in summary["active"]] == [None, 0.8, 0.7]
    steps = json.loads((folder / "intervals.json").read_text())
    assert steps[2] == {"step": step(3), "start": year(3).isoformat(), "end": year(4).isoformat()}


def test_files_are_written_again_only_when_they_changed(tracker: Tracker, scored: Story, tmp_path: Path) -> None:
    folder = files_of(tmp_path / "artifacts", scored, tracker.sync_run(scored.engine, scored.run))
    written = (folder / "summary.json").stat().st_mtime_ns
    tracker.sync_run(scored.engine, scored.run)
    assert (folder / "summary.json").stat().st_mtime_ns == written
    scored.score(scored.train(20, year(3)), {3: 0.25})
    tracker.sync_run(scored.engine, scored.run)
    assert json.loads((folder / "summary.json").read_text())["trained"][2]["value"] == 0.25


def test_a_place_that_takes_no_files_costs_a_warning_and_no_numbers(
    mlflow_uri: str, scored: Story, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    client = open_client(mlflow_uri)
    tracker = Tracker(client, "http://here", str(tmp_path / "file"))
    run_id = tracker.sync_run(scored.engine, scored.run)
    assert client.get_run(run_id).data.metrics["triggers"] == 1.0
    (warning,) = caplog.records
    assert f"took no files of run {run_id}" in warning.getMessage()
    # The next sync tries again.
    (tmp_path / "file").unlink()
    tracker.sync_run(scored.engine, scored.run)
    assert files_of(tmp_path / "file", scored, run_id).joinpath("summary.json").is_file()


def test_runs_without_scores_have_files_too(tracker: Tracker, story: Story, tmp_path: Path) -> None:
    folder = files_of(tmp_path / "artifacts", story, tracker.sync_run(story.engine, story.run))
    assert json.loads((folder / "intervals.json").read_text()) == []
    assert "no interval has a score yet" in (folder / "score_over_time.svg").read_text()
