"""Nodes that die in the middle of a replay, and a head that is restarted: launched again, the replay ends the same."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import dagster as dg
import psutil
import pytest

from modyn_dagster.catalog.runs import list_runs
from tests.cluster.nodes import Node, Nodes, nodes_of
from tests.cluster.replays import SECONDS, Launches, launches_of
from tests.conftest import RunningServer
from tests.golden.driving import Site
from tests.integration.harness.deployment import Deployment, deployed
from tests.integration.harness.outcome import Outcome, outcome_of
from tests.integration.harness.waiting import wait_for
from tests.projects.tiny import batch_text, custom, drop

pytestmark = [pytest.mark.process, pytest.mark.soak("ray")]

PIPELINE: Final = "gated"
DAYS: Final = 6
KEYS: Final = tuple(f"day_{day:02d}" for day in range(DAYS))
#: Seconds for which a head may be away.
LOST: Final = 30


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gate") / "closed"


@pytest.fixture(scope="module")
def deployment(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory, gate: Path) -> Iterator[Deployment]:
    pipeline = custom(PIPELINE, "tiny_models:gated", config={"gate": str(gate)}, every=75)
    with deployed(postgres_server, tmp_path_factory.mktemp("site"), [pipeline]) as deployment:
        for day, key in enumerate(KEYS):
            drop(deployment.project, key, batch_text(day))
        deployment.command("dataset", "import", "tiny")
        yield deployment


@pytest.fixture(scope="module")
def undisturbed(deployment: Deployment) -> Outcome:
    Site(deployment.platform).replay(PIPELINE)
    return outcome(deployment, "")


def outcome(deployment: Deployment, name: str) -> Outcome:
    with deployment.platform.transaction() as conn:
        [run] = [run for run in list_runs(conn, PIPELINE) if run.name == name]
    return outcome_of(deployment.platform, run)


@pytest.fixture
def nodes(deployment: Deployment) -> Iterator[Nodes]:
    with nodes_of(deployment.environment) as nodes:
        yield nodes


@pytest.fixture
def shut(gate: Path) -> Iterator[Path]:
    """The gate, closed until the test opens it."""
    gate.touch()
    yield gate
    gate.unlink(missing_ok=True)
    gate.with_suffix(".waited").unlink(missing_ok=True)


def trains(launches: Launches, gate: Path, name: str) -> str:
    """A replay that has begun to train; its run's id."""
    gate.with_suffix(".waited").unlink(missing_ok=True)
    run_id = launches.replay(PIPELINE, name)
    launches.trains(run_id, gate)
    return run_id


def lost(launches: Launches, run_id: str) -> None:
    """Report a run as failed once its health says so, as Dagster's monitoring does."""
    wait_for("the loss to be noticed", lambda: launches.health(run_id) == "FAILED", SECONDS, lambda: launches.story(run_id))
    run = launches.instance.get_run_by_id(run_id)
    assert run is not None
    if not run.is_finished:
        launches.instance.report_run_failed(run)


def test_a_node_that_is_removed_in_the_middle_of_a_replay_changes_nothing(
    nodes: Nodes, deployment: Deployment, undisturbed: Outcome, shut: Path
) -> None:
    nodes.start_head(0)
    victim: Node = nodes.start_node(1)
    with launches_of(deployment, (KEYS[0], KEYS[-1]), {"address": nodes.dashboard}) as launches:
        first = trains(launches, shut, "removed")
        assert launches.health(first) == "RUNNING"
        victim.die()
        lost(launches, first)
        nodes.start_node(1)
        second = trains(launches, shut, "removed")
        shut.unlink()
        assert launches.ended(second) == dg.DagsterRunStatus.SUCCESS, launches.story(second)
    assert outcome(deployment, "removed") == undisturbed


def test_a_node_that_dies_under_the_workers_of_a_replay_changes_nothing(
    nodes: Nodes, deployment: Deployment, undisturbed: Outcome, shut: Path
) -> None:
    nodes.start_head(1)
    victim = nodes.start_node(2)
    environment = {**deployment.environment, **nodes.access}
    command = ("pipeline", "replay", PIPELINE, "--name", "dealt", "--workers", f"ray:{nodes.address}")
    with ThreadPoolExecutor(1) as pool:
        replay = pool.submit(deployment.command, *command, environment=environment)
        wait_for("the training", lambda: replay.done() or len(trainings_on(victim)) == 2, SECONDS)
        assert not replay.done(), replay.result()
        victim.die()
        shut.unlink()
        replay.result()
    assert outcome(deployment, "dealt") == undisturbed


def trainings_on(node: Node) -> list[psutil.Process]:
    """Workers of a node that stand before the gate, in a call of a pool."""
    return [process for process in node.processes() if process.name().startswith("ray::modyn")]


def test_a_head_that_is_restarted_fails_runs_after_a_while_and_the_next_launch_goes_on(
    nodes: Nodes, deployment: Deployment, undisturbed: Outcome, shut: Path
) -> None:
    head = nodes.start_head(1)
    settings = {"address": nodes.dashboard, "lost_seconds": LOST}
    with launches_of(deployment, (KEYS[0], KEYS[-1]), settings) as launches:
        first = trains(launches, shut, "restarted")
        head.die()
        assert launches.health(first) == "RUNNING", "a head that is away for a moment fails nothing"
        nodes.start_head(1)
        assert launches.job(first) is None, "the new head knows nothing of the job"
        lost(launches, first)
        second = trains(launches, shut, "restarted")
        shut.unlink()
        assert launches.ended(second) == dg.DagsterRunStatus.SUCCESS, launches.story(second)
    assert outcome(deployment, "restarted") == undisturbed
