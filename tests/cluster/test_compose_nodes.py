"""The program of the nodes in compose.yaml, as processes of this machine: they form a cluster, are healthy, and run a replay."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import dagster as dg
import pytest

from tests.cluster.nodes import Nodes, nodes_of
from tests.cluster.replays import launches_of
from tests.conftest import RunningServer
from tests.golden.driving import Site
from tests.integration.harness.deployment import Deployment, deployed
from tests.projects.tiny import ROOT, amount, batch_text, drop

pytestmark = [pytest.mark.process, pytest.mark.soak("ray")]

PROGRAM: Final = ROOT / "deploy" / "image" / "ray_node.sh"
KEYS: Final = ("day_00", "day_01", "day_02")


def node_of_compose(role: str) -> Sequence[str]:
    return ["sh", str(PROGRAM), role]


@pytest.fixture(scope="module")
def deployment(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(postgres_server, tmp_path_factory.mktemp("site"), [amount("by_amount", every=60)]) as deployment:
        for day, key in enumerate(KEYS):
            drop(deployment.project, key, batch_text(day))
        deployment.command("dataset", "import", "tiny")
        yield deployment


@pytest.fixture(scope="module")
def nodes(deployment: Deployment) -> Iterator[Nodes]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with nodes_of({**deployment.environment, "PATH": path, "MODYN_RAY_NODE": "127.0.0.1"}, node_of_compose) as nodes:
        nodes.start_head(0)
        nodes.start_node(1)
        yield nodes


def health(nodes: Nodes, address: str) -> int:
    environment = {**nodes.environment, **nodes.access, "MODYN_RAY_DASHBOARD": nodes.dashboard, "MODYN_RAY_NODE": address}
    return subprocess.run([*node_of_compose("health")], env=environment, capture_output=True, check=False).returncode


def test_a_node_is_healthy_while_the_head_counts_it(nodes: Nodes) -> None:
    # Not above: Ray reads the token once, when it is imported.
    from ray.util.state import list_nodes

    [address] = {node.node_ip for node in list_nodes(nodes.dashboard)}
    assert health(nodes, address) == 0
    assert health(nodes, "192.0.2.1") == 1


def test_a_replay_runs_on_the_worker_with_the_databases_of_its_environment(nodes: Nodes, deployment: Deployment) -> None:
    Site(deployment.platform).replay("by_amount")
    with launches_of(deployment, (KEYS[0], KEYS[-1]), {"address": nodes.dashboard}) as launches:
        run_id = launches.replay("by_amount", "there")
        assert launches.ended(run_id) == dg.DagsterRunStatus.SUCCESS, launches.story(run_id)
