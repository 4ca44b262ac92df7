"""Through MLflow's server it is the same as through its database."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.mlflow.tracker import Tracker
from tests.reporting.story import Story, step, year

_START_SECONDS = 60.0


@pytest.fixture
def server(mlflow_uri: str, tmp_path: Path) -> Iterator[str]:
    """Address of an MLflow server on the session's database."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1", "--artifacts-destination", str(tmp_path / "served")]
    environment = {"MLFLOW_BACKEND_STORE_URI": mlflow_uri, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with open(tmp_path / "server.log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *options],
            env={**os.environ, **environment, "MLFLOW_DISABLE_TELEMETRY": "true"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(port):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


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
