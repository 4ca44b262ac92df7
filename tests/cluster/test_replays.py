"""Replays on two nodes: the same bits as here, one claim for two of them, and plain words where there is no room."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import dagster as dg
import pytest

from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.resources.run_classes import RESOURCES_TAG, pipeline_tags
from tests.cluster.nodes import Nodes, nodes_of
from tests.cluster.replays import SECONDS, Launches, launches_of
from tests.conftest import RunningServer
from tests.golden.driving import Site
from tests.integration.harness.deployment import Deployment, deployed
from tests.integration.harness.outcome import Outcome, Predictions, outcome_of, predictions_of
from tests.integration.harness.waiting import wait_for
from tests.projects.tiny import batch_text, custom, drop

pytestmark = [pytest.mark.process, pytest.mark.soak("ray")]

PIPELINE: Final = "gated"
RANKED: Final = "ranked"
DAYS: Final = 6
KEYS: Final = tuple(f"day_{day:02d}" for day in range(DAYS))


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """While this file is there, the pipeline trains and trains."""
    return tmp_path_factory.mktemp("gate") / "closed"


def deployment_in(server: RunningServer, folder: Path, gate: Path):
    ranked = custom(RANKED, "tiny_models:gated", config={"gate": str(gate)}, every=75) | {"resources": {"train": {}}}
    ranked["training"] |= {"ranks": 2}
    return deployed(server, folder, [custom(PIPELINE, "tiny_models:gated", config={"gate": str(gate)}, every=75), ranked])


@pytest.fixture(scope="module")
def expected(
    postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory, gate: Path
) -> tuple[Outcome, list[Predictions]]:
    """Ending of a replay on this machine; a live run ends the same, but for the cutting of its prediction files."""
    with deployment_in(postgres_server, tmp_path_factory.mktemp("live"), gate) as deployment:
        site = Site(deployment.platform)
        for day, key in enumerate(KEYS):
            drop(deployment.project, key, batch_text(day))
            # One batch after the other: what arrives together is decided about together.
            deliver(deployment)
            site.live_until_idle(PIPELINE)
        site.finish(PIPELINE)
        live, _ = ending(deployment, "live")
    with deployment_in(postgres_server, tmp_path_factory.mktemp("here"), gate) as deployment:
        deliver_all(deployment)
        Site(deployment.platform).replay(PIPELINE)
        replayed = ending(deployment, "replay")
    assert replayed[0] == live
    assert len(live.models) >= 3
    return replayed


def deliver(deployment: Deployment) -> None:
    """Ingest what is there."""
    platform = deployment.platform
    summary = import_history(platform.engine, platform.home, platform.dataset("tiny"), platform.project.root_of("tiny"))
    assert not summary.failed


def deliver_all(deployment: Deployment) -> None:
    for day, key in enumerate(KEYS):
        drop(deployment.project, key, batch_text(day))
    deliver(deployment)


def ending(deployment: Deployment, mode: str, name: str = "") -> tuple[Outcome, list[Predictions]]:
    with deployment.platform.transaction() as conn:
        [run] = [run for run in list_runs(conn, PIPELINE) if (run.mode, run.name) == (mode, name)]
    return outcome_of(deployment.platform, run), predictions_of(deployment.platform, run)


@pytest.fixture(scope="module")
def there(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory, gate: Path) -> Iterator[Deployment]:
    """The same project with a database and files of its own, so that nothing is taken over."""
    with deployment_in(postgres_server, tmp_path_factory.mktemp("there"), gate) as deployment:
        for day, key in enumerate(KEYS):
            drop(deployment.project, key, batch_text(day))
        deployment.command("dataset", "import", "tiny")
        yield deployment


@pytest.fixture(scope="module")
def nodes(there: Deployment) -> Iterator[Nodes]:
    with nodes_of(there.environment) as nodes:
        nodes.start_head(1)
        nodes.start_node(1)
        yield nodes


@pytest.fixture(scope="module")
def launches(nodes: Nodes, there: Deployment) -> Iterator[Launches]:
    with launches_of(there, (KEYS[0], KEYS[-1]), {"address": nodes.dashboard, "stop_seconds": 20}) as launches:
        yield launches


def test_live_equals_replay_equals_replays_on_two_nodes(
    launches: Launches, gate: Path, expected: tuple[Outcome, list[Predictions]]
) -> None:
    gate.touch()
    first, second = launches.replay(PIPELINE, "first"), launches.replay(PIPELINE, "second")

    def nodes_of_jobs() -> set[str] | None:
        found = {launches.job(run_id).driver_node_id for run_id in (first, second)}
        return found if None not in found else None

    places = wait_for("both jobs", nodes_of_jobs, SECONDS)
    gate.unlink()
    for name, run_id in (("first", first), ("second", second)):
        assert launches.ended(run_id) == dg.DagsterRunStatus.SUCCESS, launches.story(run_id)
        assert ending(launches.deployment, "replay", name) == expected
    assert len(places) == 2, "each replay had a node of its own"


def test_ray_shows_no_secret(launches: Launches, nodes: Nodes, expected: object) -> None:
    password = str(launches.deployment.settings.postgres_url).partition("@")[0].rpartition(":")[2]
    assert password in os.environ["DAGSTER_PG_URL"]
    assert launches.launcher.ray is not None
    jobs = launches.launcher.ray.client.list_jobs()
    assert jobs
    assert not any(password in str(job) or nodes.token in str(job) for job in jobs)
    shown = [text for process in nodes.left_over() for text in process.cmdline()]
    assert not any(password in text or nodes.token in text for text in shown)
    logs = [path for path in nodes.folder.rglob("job-driver-*.log") if path.is_file() and not path.is_symlink()]
    assert logs
    assert not any(password in path.read_text() for path in logs)


def test_two_launchers_and_one_claim(launches: Launches, expected: tuple[Outcome, list[Predictions]]) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: launches.replay(PIPELINE, "twice"), range(2)))
    statuses = [launches.ended(run_id) for run_id in both]
    assert dg.DagsterRunStatus.SUCCESS in statuses, [launches.story(run_id) for run_id in both]
    assert ending(launches.deployment, "replay", "twice") == expected


def test_a_cancelled_run_ends_by_itself_and_is_said_to_be_cancelled(launches: Launches, gate: Path) -> None:
    gate.touch()
    try:
        run_id = launches.replay(PIPELINE, "cancelled")
        launches.trains(run_id, gate)
        assert launches.launcher.terminate(run_id)
        assert launches.ended(run_id) == dg.DagsterRunStatus.CANCELED
    finally:
        gate.unlink()
        gate.with_suffix(".waited").unlink()
    # The run says so before its process ends.
    wait_for("the end of the job", lambda: launches.job(run_id).status.value == "STOPPED", SECONDS)
    # By force it would have ended without a word; the run itself says this.
    assert "gated__replay" in launches.story(run_id)


def test_a_run_and_its_ranks_have_room_in_as_many_cores_as_they_compute_on(
    there: Deployment, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODYN_RANKS", "ray:auto")
    settings = {"address": nodes.dashboard, "env_vars": ["MODYN_RANKS"]}
    tags = pipeline_tags("replay", there.platform.project.pipelines[RANKED])
    assert json.loads(tags[RESOURCES_TAG])["cpus"] == 1
    # Nodes of one core: one for the run, and one for each rank.
    third = nodes.start_node(1)
    try:
        with launches_of(there, (KEYS[0], KEYS[-1]), settings) as launches:
            run_id = launches.replay(RANKED, "ranked", tags)
            assert launches.ended(run_id) == dg.DagsterRunStatus.SUCCESS, launches.story(run_id)
    finally:
        third.end()


def test_a_cluster_that_has_no_room_says_so(there: Deployment, nodes: Nodes) -> None:
    settings = {"address": nodes.dashboard, "start_seconds": 4}
    wanted = json.dumps({"cpus": 64, "gpus": 1, "memory": 0})
    with launches_of(there, (KEYS[0], KEYS[-1]), settings) as launches:
        run_id = launches.replay(PIPELINE, "large", {RESOURCES_TAG: wanted})
        assert launches.ended(run_id) == dg.DagsterRunStatus.FAILURE
        story = launches.story(run_id)
    assert "the cluster had no room for 64 CPUs, 1 GPUs and 0 GB of memory within 4 s; no node is large enough: 1 CPUs" in story


def test_a_program_that_is_missing_on_the_node_fails_the_run_with_what_to_do(there: Deployment, nodes: Nodes) -> None:
    with launches_of(there, (KEYS[0], KEYS[-1]), {"address": nodes.dashboard, "python": "/nowhere/python"}) as launches:
        run_id = launches.replay(PIPELINE, "missing")
        assert launches.ended(run_id) == dg.DagsterRunStatus.FAILURE
        story = launches.story(run_id)
    assert "the run did not begin: its Ray job is FAILED" in story
    assert "run_launcher.config.ray.python in dagster.yaml names the interpreter" in story
    assert "/nowhere/python" in story
