"""Services run one by one: external Postgres, files and models in an object store, a code location that dies.

Live equals replay, and the replay has a home of its own, as on another machine.
"""

import http
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import RunningServer
from tests.integration.harness.deployment import deployed
from tests.integration.harness.stack import SERVICES, Stack, stacked
from tests.integration.harness.stream import Stream, compare_with_replay
from tests.integration.harness.waiting import wait_for
from tests.model_store import s3 as object_store
from tests.model_store.s3 import S3
from tests.projects.tiny import custom

pytestmark = pytest.mark.soak("distributed")

PIPELINE: Final = "gated"
_SECONDS: Final = 600
#: Folders of state that are in the store, and in no home.
STORED: Final = ("batches", "training_sets", "predictions")


@pytest.fixture(scope="module")
def bucket() -> Iterator[S3]:
    """An object store that the environment names, as boto and fsspec read it."""
    with object_store.running() as s3, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", s3.key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield s3


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """While this file is there, the pipeline trains and trains."""
    return tmp_path_factory.mktemp("gate") / "closed"


@pytest.fixture(scope="module")
def files(bucket: S3) -> str:
    """URL of the deployment's files, ``MODYN_FILES``."""
    return bucket.fresh_url()


@pytest.fixture(scope="module")
def stack(
    postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory, gate: Path, bucket: S3, files: str
) -> Iterator[Stack]:
    pipeline = custom(PIPELINE, "tiny_models:gated", config={"gate": str(gate)}, every=75) | {
        "model_store": {"root": bucket.fresh_url()}
    }
    with (
        deployed(postgres_server, tmp_path_factory.mktemp("live"), [pipeline], files=files) as deployment,
        stacked(deployment, tmp_path_factory.mktemp("services")) as stack,
    ):
        yield stack


def status_of(url: str, **headers: str) -> int:
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - an http address of ours
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_both_servers_of_pages_ask_for_the_password_of_the_file(stack: Stack) -> None:
    password = {"Authorization": f"Bearer {stack.token}"}
    for url in (f"http://127.0.0.1:{stack.port}/server_info", f"http://127.0.0.1:{stack.mlflow_port}/health"):
        assert status_of(url) == http.HTTPStatus.UNAUTHORIZED
        assert status_of(url, Host="evil.example", **password) == http.HTTPStatus.FORBIDDEN
        assert status_of(url, **password) == http.HTTPStatus.OK


def test_no_command_line_of_a_service_shows_a_secret(stack: Stack) -> None:
    url = stack.deployment.settings.postgres_url
    assert url is not None
    for name in SERVICES:
        for process in stack.marked(name):
            shown = " ".join(process.cmdline())
            assert url not in shown
            assert stack.token not in shown


def test_fed_through_separate_services_with_a_code_location_that_dies_a_pipeline_ends_as_its_replay(
    stack: Stack, gate: Path, bucket: S3, files: str, tmp_path: Path
) -> None:
    stream = Stream(stack, PIPELINE)
    stream.switch_on()
    gate.touch()
    stream.wait_until(**{stream.deliver(0): "ingested", stream.deliver(1): "ingested"})
    wait_for("the first training", gate.with_suffix(".waited").exists, _SECONDS, stream.why)

    stack.kill("code")
    assert not stack.is_healthy("code")
    gate.unlink()
    stack.start("code")
    stream.wait_until(**{stream.deliver(2): "ingested", stream.deliver(3): "ingested"})
    stream.wait_until_trained(2)
    # The run that died with its code location was found, failed, and its trigger tried again.
    assert stack.deployment.triggers(PIPELINE, "live")[0].attempt == 2

    stream.wait_until_decided()
    outcome = compare_with_replay(stream, tmp_path / "home")
    assert len(outcome.triggers) == 2
    root = stack.deployment.platform.project.pipelines[PIPELINE].model_store.root
    stored, homes = bucket.files(), (stack.deployment.settings.home, tmp_path / "home")
    assert len(stored.find(root)) > 0
    for name in STORED:
        assert len(stored.find(f"{files}/{name}")) > 0
    for home in homes:
        assert not any((home / name).exists() for name in (*STORED, "models"))
        assert any((home / "cache").rglob("*.arrow")), "each home has read through copies of its own"


def test_at_last_term_ends_every_service_with_exit_code_0_and_nothing_is_left(stack: Stack) -> None:
    assert stack.stop() == dict.fromkeys(SERVICES, 0)
    assert [process for name in SERVICES for process in stack.marked(name)] == []
