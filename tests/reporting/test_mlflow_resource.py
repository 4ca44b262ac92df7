"""The Dagster resource: where its address comes from, and what it says when there is none."""

import logging
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Semaphore

import dagster as dg
import pytest

from modyn_dagster.errors import TrackingError, TrackingSilence
from modyn_dagster.reporting.mlflow.tracker import Tracker
from modyn_dagster.resources import mlflow as module
from modyn_dagster.resources.mlflow import MlflowResource, Progress
from tests.reporting.story import Story


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("MODYN_MLFLOW_URI", "MODYN_MLFLOW_UI_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MODYN_HOME", str(tmp_path))


@pytest.fixture
def said() -> Iterator[list[str]]:
    """Records of the resource's logger."""
    messages: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger, handler = dg.get_dagster_logger("mlflow"), Collect()
    logger.addHandler(handler)
    module.log_tracking_off.cache_clear()
    yield messages
    logger.removeHandler(handler)


def test_without_an_address_tracking_is_off_and_it_is_said_once(said: list[str]) -> None:
    resource = MlflowResource()
    assert not resource.enabled
    assert not MlflowResource().enabled
    assert said == ["MLflow tracking is off: set MODYN_MLFLOW_URI to switch it on"]
    with pytest.raises(TrackingError, match="set MODYN_MLFLOW_URI"):
        resource.client()


def test_the_address_comes_from_the_environment_and_a_given_one_goes_first(
    monkeypatch: pytest.MonkeyPatch, mlflow_uri: str
) -> None:
    monkeypatch.setenv("MODYN_MLFLOW_URI", mlflow_uri)
    assert MlflowResource().enabled
    assert MlflowResource().client().tracking_uri == mlflow_uri
    with pytest.raises(TrackingError):
        MlflowResource(tracking_uri="nonsense").client()


def test_one_that_does_not_answer_is_waited_for_once_and_named_without_its_password() -> None:
    resource, let_go, asked = MlflowResource(tracking_uri="http://somebody:secret@server.invalid:1"), Event(), Semaphore(0)

    def ask(_progress: object) -> None:
        asked.release()
        let_go.wait(600)

    for _ in range(3):
        with pytest.raises(TrackingSilence, match=r"http://server\.invalid:1: no answer within 0\.01 s"):
            resource.within(0.01, ask)
        assert resource.is_silent
    let_go.set()
    assert asked.acquire(timeout=600)
    assert not asked.acquire(blocking=False), "asked once"
    assert not MlflowResource(tracking_uri="http://server.invalid:1").is_silent


@pytest.mark.soak("hangs")
def test_one_that_is_slow_but_gets_further_is_waited_for() -> None:
    def ask(progress: Progress) -> str:
        for _ in range(12):
            time.sleep(0.25)
            progress()
        return "answer"

    resource = MlflowResource(tracking_uri="http://server.invalid:1")
    assert resource.within(2, ask) == "answer"
    assert not resource.is_silent


def shown_page(resource: MlflowResource, story: Story) -> str:
    tracker = resource.tracker()
    assert isinstance(tracker, Tracker)
    return tracker.url_of(tracker.sync_run(story.engine, story.run))


def test_pages_are_where_people_open_mlflow(monkeypatch: pytest.MonkeyPatch, mlflow_uri: str, story: Story) -> None:
    resource = MlflowResource(tracking_uri=mlflow_uri)
    assert shown_page(resource, story).startswith("http://127.0.0.1:5000/#/experiments/")
    monkeypatch.setenv("MODYN_MLFLOW_UI_URL", "https://mlflow.example/")
    assert shown_page(resource, story).startswith("https://mlflow.example/#/experiments/")
    assert shown_page(MlflowResource(tracking_uri=mlflow_uri, ui_url="http://here:1"), story).startswith("http://here:1/#/")


def test_files_go_below_the_home_folder_or_where_they_are_sent(mlflow_uri: str, story: Story, tmp_path: Path) -> None:
    shown_page(MlflowResource(tracking_uri=mlflow_uri), story)
    assert len(list((tmp_path / "mlflow" / story.pipeline).glob("*/artifacts/summary.json"))) == 1
    elsewhere = Story(story.engine, f"p_{secrets.token_hex(4)}")
    shown_page(MlflowResource(tracking_uri=mlflow_uri, artifact_root=str(tmp_path / "elsewhere")), elsewhere)
    assert len(list((tmp_path / "elsewhere").rglob("summary.json"))) == 1


def test_an_op_gets_the_resource(mlflow_uri: str, story: Story) -> None:
    pages: list[str] = []

    @dg.asset
    def shown(mlflow: MlflowResource) -> None:
        pages.append(shown_page(mlflow, story))

    result = dg.materialize([shown], resources={"mlflow": MlflowResource(tracking_uri=mlflow_uri)})
    assert result.success
    assert len(pages) == 1
