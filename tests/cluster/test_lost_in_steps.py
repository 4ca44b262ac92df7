"""Nodes that stand still or die in the middle of an evaluation and of a sampling step: the end is that of an undisturbed one."""

import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import psutil
import pytest

from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.distributed.in_process import InProcessPool
from modyn_dagster.distributed.on_ray.cluster import connect
from modyn_dagster.distributed.on_ray.pool import RayPool
from modyn_dagster.distributed.protocols import Item, Pool, Resources, Result
from modyn_dagster.selection.time_biased import DRTBS
from tests.cluster import calls
from tests.cluster.nodes import Node, Nodes, nodes_of
from tests.cluster.replays import SECONDS
from tests.conftest import RunningServer
from tests.golden.driving import Site
from tests.integration.harness.deployment import Deployment, deployed
from tests.integration.harness.outcome import Outcome, Predictions, outcome_of, predictions_of
from tests.integration.harness.waiting import wait_for
from tests.projects.tiny import batch_text, custom, drop

pytestmark = [pytest.mark.process, pytest.mark.soak("ray")]

TRAINED: Final = "trained"
PREDICTED: Final = "predicted"
DAYS: Final = 6
ONE: Final = Resources()
Ends = tuple[Outcome, list[Predictions]]


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pipelines wait for as long as this file is there: one in its trainings, the other in its predictions."""
    return tmp_path_factory.mktemp("gate") / "closed"


@pytest.fixture(scope="module")
def deployment(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory, gate: Path) -> Iterator[Deployment]:
    config = {"gate": str(gate)}
    pipelines = [
        custom(TRAINED, "tiny_models:gated", config=config, every=75),
        custom(PREDICTED, "tiny_models:GatedPredictions", config=config, every=75),
    ]
    with deployed(postgres_server, tmp_path_factory.mktemp("site"), pipelines) as deployment:
        for day in range(DAYS):
            drop(deployment.project, f"day_{day:02d}", batch_text(day))
        deployment.command("dataset", "import", "tiny")
        yield deployment


@pytest.fixture(scope="module")
def nodes(deployment: Deployment) -> Iterator[Nodes]:
    with nodes_of(deployment.environment) as nodes:
        nodes.start_head(1)
        yield nodes


def ends(deployment: Deployment, pipeline: str, name: str) -> Ends:
    with deployment.platform.transaction() as conn:
        [run] = [run for run in list_runs(conn, pipeline) if run.name == name]
    return outcome_of(deployment.platform, run), predictions_of(deployment.platform, run)


def disturbed(
    deployment: Deployment, nodes: Nodes, gate: Path, pipeline: str, disturb: Callable[[Callable[[], bool]], None]
) -> None:
    """Replay with workers on the cluster, and do something to a node while they wait before the gate.

    ``disturb`` is given a function that tells whether the replay is over.
    """
    environment = {**deployment.environment, **nodes.access}
    command = ("pipeline", "replay", pipeline, "--name", "disturbed", "--workers", f"ray:{nodes.address}")
    gate.touch()
    with ThreadPoolExecutor(1) as pool:
        replay = pool.submit(deployment.command, *command, environment=environment)
        try:
            disturb(replay.done)
        finally:
            gate.unlink(missing_ok=True)
        replay.result()


def calls_on(node: Node, room: str) -> list[psutil.Process]:
    """Workers of a node that are in a call of a function of some package."""
    return [process for process in node.processes() if any(room in word for word in process.cmdline()[:1])]


def test_a_node_whose_workers_stand_still_for_a_while_holds_a_replay_up_and_changes_nothing(
    deployment: Deployment, nodes: Nodes, gate: Path
) -> None:
    slow = nodes.start_node(1)

    def stand_still(is_over: Callable[[], bool]) -> None:
        [worker] = wait_for("a training there", lambda: calls_on(slow, "training_ahead") or None, SECONDS)
        worker.send_signal(signal.SIGSTOP)
        gate.unlink()
        # The trainings of the other node go on; that of this one has to be waited for.
        files = deployment.settings.home / "ahead"
        wait_for("a training elsewhere", lambda: any(files.rglob("*.safetensors")), SECONDS)
        assert not is_over(), "the replay went on without the training"
        worker.send_signal(signal.SIGCONT)

    Site(deployment.platform).replay(TRAINED)
    disturbed(deployment, nodes, gate, TRAINED, stand_still)
    slow.end()
    assert ends(deployment, TRAINED, "disturbed") == ends(deployment, TRAINED, "")


def test_a_node_that_dies_in_the_middle_of_an_evaluation_changes_nothing(
    deployment: Deployment, nodes: Nodes, gate: Path
) -> None:
    victim = nodes.start_node(2)

    def die(is_over: Callable[[], bool]) -> None:
        wait_for("evaluations there", lambda: is_over() or len(calls_on(victim, "evaluation")) == 2, SECONDS)
        assert not is_over(), "the node had no evaluations to lose"
        victim.die()

    Site(deployment.platform).replay(PREDICTED)
    disturbed(deployment, nodes, gate, PREDICTED, die)
    found, expected = ends(deployment, PREDICTED, "disturbed"), ends(deployment, PREDICTED, "")
    assert found == expected
    assert len(found[1]) >= 3


@dataclass
class GatedPool:
    """Pool of a cluster whose calls wait before they do anything, until a file in a folder says that they may."""

    pool: RayPool
    folder: Path

    @property
    def workers(self) -> int:
        return self.pool.workers

    def map(self, function: Callable[[Item], Result], items: Iterable[Item], resources: Resources = ONE) -> Iterator[Result]:
        return self.pool.map(calls.call_behind_a_gate, [(str(self.folder), function, item) for item in items], resources)


def sampled(pool: Pool) -> DRTBS:
    sampler = DRTBS(1_000, 0.1, 3, shards=6, pool=pool)
    for day in range(8):
        sampler.update(np.arange(day * 400, (day + 1) * 400, dtype=np.uint64), elapsed=1.0)
        if day % 3 == 2:
            sampler.flush()
    sampler.flush()
    return sampler


def test_a_node_that_dies_in_the_middle_of_a_sampling_step_changes_nothing(nodes: Nodes, tmp_path: Path) -> None:
    victim = nodes.start_node(1)
    ray = connect(nodes.address)
    try:
        with ThreadPoolExecutor(1) as pool:
            step = pool.submit(sampled, GatedPool(RayPool(nodes.address), tmp_path))
            try:
                # Shards are with both nodes, none of them is back.
                wait_for("shards there", lambda: step.done() or len(list(tmp_path.glob("begun-*"))) == 2, SECONDS)
                assert not step.done(), step.result()
                victim.die()
            finally:
                (tmp_path / "open").touch()
            found = step.result()
    finally:
        ray.shutdown()
    expected = sampled(InProcessPool())
    assert found.state_dict() == expected.state_dict()
    np.testing.assert_array_equal(found.sample(), expected.sample())
