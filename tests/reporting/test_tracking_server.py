"""Through MLflow's server it is the same as through its database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.mlflow.tracker import Tracker
from tests.reporting.story import Story, step, year
from tests.reporting.tracking_server import tracking_server


@pytest.fixture
def server(mlflow_uri: str, tmp_path: Path) -> Iterator[str]:
    """Address of an MLflow server on the session's database."""
    with tracking_server(mlflow_uri, tmp_path) as address:
        yield address


@pytest.mark.soak("screens")
def test_a_server_shows_the_same_as_the_database(server: str, mlflow_uri: str, story: Story, tmp_path: Path) -> None:
    row = story.train(10, year(1.5), steps=1000)
    story.score(row, {n: 1 / (n + 3) for n in range(1200)})
    through_server = Tracker(open_client(server), server)
    parent = through_server.sync_all(story.engine, story.run)
    child = through_server.sync_trigger(story.engine, story.run, row)
    # Seen through the database nothing is missing and nothing is new, so nothing is replaced.
    through_database = Tracker(open_client(mlflow_uri), server)
    assert through_database.sync_all(story.engine, story.run) == parent
    assert through_database.sync_trigger(story.engine, story.run, row) == child
    for client in (open_client(server), open_client(mlflow_uri)):
        points = client.get_metric_history(child, "evaluation/accuracy")
        assert sorted((point.step, point.value) for point in points) == [(step(n), 1 / (n + 3)) for n in range(1200)]
    assert [path.name for path in (tmp_path / "served").rglob("*.svg")] == ["score_over_time.svg"]
