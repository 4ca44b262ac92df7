"""Opening MLflow: quickly, without secrets in errors, and by several processes at once."""

import multiprocessing
import socket
import time
from typing import Any

import pytest
import sqlalchemy as sa

from modyn_dagster.errors import TrackingError
from modyn_dagster.reporting.mlflow.client import address_of, open_client
from modyn_dagster.reporting.mlflow.tracker import Tracker
from tests.reporting.story import Story, year

SECRET = "s3cret"


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg2", "http"])
def test_what_is_down_is_said_at_once_without_the_password(scheme: str, closed_port: int) -> None:
    begin = time.monotonic()
    with pytest.raises(TrackingError, match=f"127.0.0.1:{closed_port}.*refused.*next sync") as caught:
        open_client(f"{scheme}://somebody:{SECRET}@127.0.0.1:{closed_port}/mlflow")
    assert time.monotonic() - begin < 10
    assert SECRET not in str(caught.value)


def test_a_database_that_does_not_exist_is_named(postgres_server: Any) -> None:
    url = postgres_server.url.set(drivername="postgresql", database="nowhere")
    with pytest.raises(TrackingError, match='"nowhere" does not exist') as caught:
        open_client(url.render_as_string(hide_password=False))
    assert str(url.password) not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    ["", "file:///runs", f"{SECRET}://", SECRET, f"http://[{SECRET}", f"https://host:{SECRET}", f"postgresql://host:{SECRET}/db"],
)
def test_an_address_that_is_none_is_an_error_that_says_what_one_looks_like(uri: str) -> None:
    with pytest.raises(TrackingError, match="must look like http://host:port or postgresql://") as caught:
        open_client(uri)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        (f"postgresql://me:{SECRET}@host:5432/mlflow?sslkey={SECRET}", "me@host:5432/mlflow"),
        (f"https://me:{SECRET}@host:5000/path?token={SECRET}", "https://host:5000/path"),
        ("sqlite:////folder/mlflow.db", "localhost//folder/mlflow.db"),
    ],
)
def test_addresses_in_messages_hold_no_secret(uri: str, address: str) -> None:
    assert address_of(uri) == address


@pytest.mark.soak("screens")
def test_a_server_that_goes_down_later_loses_nothing(postgres_server: Any, empty_uri: str, engine: sa.Engine) -> None:
    tracker = Tracker(open_client(empty_uri), "http://here")
    story = Story(engine)
    row = story.train(10, year(1))
    postgres_server.drop_database(str(sa.make_url(empty_uri).database))
    with pytest.raises(TrackingError, match="does not exist") as caught:
        tracker.sync_trigger(engine, story.run, row)
    assert "\n" not in str(caught.value)
    with engine.connect() as conn:
        assert conn.scalar(sa.text("select count(*) from model")) == 1
        assert conn.scalar(sa.text("select mlflow_run_id from trigger")) is None


@pytest.mark.soak("screens")
def test_processes_may_make_the_tables_at_the_same_time(empty_uri: str) -> None:
    # Forked: MLflow is imported already, so they really are at the same place at the same time.
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=open_client, args=(empty_uri,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert open_client(empty_uri).get_experiment("0").name == "Default"
