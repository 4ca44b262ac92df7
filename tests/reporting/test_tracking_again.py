"""Later syncs of one tracker: they send what is new, and read nothing back that nobody else has changed."""

import pytest
from mlflow import MlflowClient

from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.mlflow.tracker import Tracker
from tests.reporting.story import Story, step, year


def scores(mlflow_uri: str, run_id: str) -> list[tuple[int, float]]:
    history = open_client(mlflow_uri).get_metric_history(run_id, "evaluation/accuracy")
    return sorted((metric.step, metric.value) for metric in history)


@pytest.mark.soak("screens")
def test_points_that_a_tracker_has_sent_are_not_read_again(
    tracker: Tracker, story: Story, mlflow_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = story.train(10, year(1.5))
    story.score(row, {1: 0.1, 2: 0.2})
    run_id = tracker.sync_trigger(story.engine, story.run, row)
    story.score(row, {3: 0.3})
    with monkeypatch.context() as patched:
        patched.delattr(MlflowClient, "get_metric_history")
        assert tracker.sync_trigger(story.engine, story.run, row) == run_id
    assert scores(mlflow_uri, run_id) == [(step(n), n / 10) for n in (1, 2, 3)]


def test_a_point_that_another_tracker_has_sent_since_and_that_is_wrong_by_now_is_found(
    tracker: Tracker, story: Story, mlflow_uri: str
) -> None:
    another = Tracker(open_client(mlflow_uri), "http://127.0.0.1:5000")
    row = story.train(10, year(1.5))
    for each, value in ((tracker, None), (another, 0.5), (tracker, 0.2)):
        story.score(row, {1: 0.1} if value is None else {2: value})
        run_id = each.sync_trigger(story.engine, story.run, row)
    assert scores(mlflow_uri, run_id) == [(step(1), 0.1), (step(2), 0.2)]
