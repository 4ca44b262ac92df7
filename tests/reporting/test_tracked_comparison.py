"""The comparison of a dataset in MLflow: one run, brought up to date, with the page beside it."""

import secrets
from pathlib import Path

import pytest
import sqlalchemy as sa

from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.mlflow.content import DagsterRun
from modyn_dagster.reporting.mlflow.process import TrackerAddress, TrackerProcess
from modyn_dagster.reporting.mlflow.tracker import Tracker
from modyn_dagster.reporting.page.plots import report_figures
from modyn_dagster.reporting.plots.figures import save
from modyn_dagster.settings import Settings
from tests.reporting.made_up import a_report


@pytest.mark.soak("screens")
def test_a_comparison_is_one_run_whose_scores_and_page_are_the_newest(
    tracker: Tracker, mlflow_uri: str, shared_engine: sa.Engine, tmp_path: Path
) -> None:
    dataset, page = f"d_{secrets.token_hex(4)}", tmp_path / "report.html"
    page.write_text("first")
    first = tracker.sync_comparison(shared_engine, dataset, {"score a": 0.5}, [page])
    page.write_text("second")
    drawn = {tmp_path / f"{name}.png": figure for name, figure in report_figures(a_report([3, 2], 4)).items()}
    for path, figure in drawn.items():
        save(figure, path)
    dagster = DagsterRun("dagster-7", "http://dagster/runs/7")
    second = tracker.sync_comparison(shared_engine, dataset, {"score a": 0.75, "score b": 0.25}, [page, *drawn], dagster)
    assert first == second
    client = open_client(mlflow_uri)
    run = client.get_run(second)
    assert run.data.metrics == {"score a": 0.75, "score b": 0.25}
    assert (run.data.tags["modyn/comparison"], run.info.status) == (dataset, "FINISHED")
    assert (run.data.tags["dagster/run_id"], run.data.tags["dagster/asset_key"]) == ("dagster-7", f"{dataset}/comparison")
    assert "[Dagster run](http://dagster/runs/7)" in run.data.tags["mlflow.note.content"]
    experiment = client.get_experiment_by_name(f"{dataset}.comparison")
    assert experiment is not None
    found = {artifact.path for artifact in client.list_artifacts(second)}
    pictures = {"pareto.png", "boxes.png", "matrix pipeline_00.png", "matrix pipeline_01.png"}
    assert found == {"report.html"} | pictures
    kept = {name: Path(client.download_artifacts(second, name, str(tmp_path))).read_bytes() for name in found}
    assert kept["report.html"] == b"second"
    assert all(kept[name].startswith(b"\x89PNG") for name in pictures)
    assert tracker.url_of(second).endswith(f"/{experiment.experiment_id}/runs/{second}")


@pytest.mark.soak("screens")
@pytest.mark.process
def test_a_process_shows_the_same_comparison(
    tracker: Tracker, mlflow_uri: str, shared_engine: sa.Engine, settings: Settings, tmp_path: Path
) -> None:
    dataset, page = f"d_{secrets.token_hex(4)}", tmp_path / "report.html"
    page.write_text("first")
    first = tracker.sync_comparison(shared_engine, dataset, {"score a": 0.5}, [page])
    with TrackerProcess(settings, TrackerAddress(mlflow_uri, "http://127.0.0.1:5000", str(tmp_path))) as process:
        shown = process.sync_comparison(dataset, {"score a": 0.75}, [page], "dagster-8", None)
    assert shown.mlflow_run == first
    assert shown.page == tracker.url_of(first)
    run = open_client(mlflow_uri).get_run(first)
    assert run.data.metrics == {"score a": 0.75}
    assert run.data.tags["dagster/run_id"] == "dagster-8"
