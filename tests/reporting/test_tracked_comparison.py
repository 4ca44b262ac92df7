"""The comparison of a dataset in MLflow: one run, brought up to date, with the page beside it."""

import secrets
from pathlib import Path

import sqlalchemy as sa

from modyn_dagster.reporting.tracking import Tracker
from modyn_dagster.reporting.tracking_client import open_client


def test_a_comparison_is_one_run_whose_scores_and_page_are_the_newest(
    tracker: Tracker, mlflow_uri: str, shared_engine: sa.Engine, tmp_path: Path
) -> None:
    dataset, page = f"d_{secrets.token_hex(4)}", tmp_path / "report.html"
    page.write_text("first")
    first = tracker.sync_comparison(shared_engine, dataset, {"score a": 0.5}, page)
    page.write_text("second")
    second = tracker.sync_comparison(shared_engine, dataset, {"score a": 0.75, "score b": 0.25}, page)
    assert first == second
    client = open_client(mlflow_uri)
    run = client.get_run(second)
    assert run.data.metrics == {"score a": 0.75, "score b": 0.25}
    assert (run.data.tags["modyn/comparison"], run.info.status) == (dataset, "FINISHED")
    experiment = client.get_experiment_by_name(f"{dataset}.comparison")
    assert experiment is not None
    [artifact] = client.list_artifacts(second)
    assert Path(client.download_artifacts(second, artifact.path, str(tmp_path))).read_text() == "second"
    assert tracker.url_of(second).endswith(f"/{experiment.experiment_id}/runs/{second}")
