"""Pools and groups on two nodes, and the comparison of nodes."""

import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from modyn_dagster.distributed.on_ray.cluster import connect
from modyn_dagster.distributed.on_ray.group import RayGroup
from modyn_dagster.distributed.on_ray.pool import RayPool
from modyn_dagster.distributed.processes.group import LocalGroup
from modyn_dagster.distributed.protocols import Resources
from modyn_dagster.errors import ConfigError, NoRoom, WorkerLost
from modyn_dagster.training import CheckpointFile, FastPath, Task, train_in_ranks
from tests.cluster import calls
from tests.cluster.nodes import Nodes, nodes_of
from tests.conftest import RunningServer
from tests.integration.harness.deployment import Deployment, deployed
from tests.integration.harness.waiting import wait_for
from tests.projects.tiny import amount
from tests.training.ranks.together import Case, Ended, rows
from tests.training.resumable import resumable

pytestmark = [pytest.mark.process, pytest.mark.soak("ray")]

#: A rank whose partner dies would wait for so long by itself.
LONG = 300.0


@pytest.fixture(scope="module")
def deployment(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployed(postgres_server, tmp_path_factory.mktemp("site"), [amount()]) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def nodes(deployment: Deployment) -> Iterator[Nodes]:
    with nodes_of(deployment.environment) as nodes:
        nodes.start_head(1)
        nodes.start_node(1)
        yield nodes


@pytest.fixture(scope="module")
def address(nodes: Nodes) -> Iterator[str]:
    """Address of the cluster; this process leaves it in the end."""
    ray = connect(nodes.address)
    yield nodes.address
    ray.shutdown()


def test_results_come_in_the_order_of_the_items(address: str) -> None:
    pool = RayPool(address)
    assert pool.workers == 2
    assert list(pool.map(calls.square, range(20))) == [number**2 for number in range(20)]


def test_calls_are_spread_over_the_nodes(address: str) -> None:
    assert len(set(RayPool(address).map(calls.place, [1.0] * 4))) == 2


def test_a_node_whose_calls_take_much_longer_is_named_with_its_time_and_changes_nothing(
    nodes: Nodes, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    slow, items = nodes.started[1].mark, range(8)
    found = RayPool(address, slow_seconds=1.0).map(calls.square_slowly, [(item, slow, 4.0) for item in items])
    assert list(found) == [item**2 for item in items]
    [record] = [record for record in caplog.records if "is slow" in record.getMessage()]
    # Once, by a call that is waited for, or by several that are over: whatever is noticed first.
    call = r"(calls of \S+square_slowly take [1-9]\S* s there|a call of \S+square_slowly has been there for [1-9]\S* s)"
    assert re.match(rf"node \S+ [0-9a-f]{{8}} is slow: {call}, \S+ times the 0\.2\d* s of other nodes", record.getMessage())


@pytest.fixture
def another_cluster(deployment: Deployment) -> Iterator[None]:
    """A cluster on the same machine that has nothing to do with this one."""
    with nodes_of(deployment.environment) as nodes:
        nodes.start_head(0)
        yield


@pytest.mark.usefixtures("another_cluster")
def test_a_node_is_named_while_its_call_is_waited_for(
    nodes: Nodes, address: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    slow, gate = nodes.started[1].mark, tmp_path / "open"
    # The other node does not do them all while this one starts its worker.
    items = [(item, slow, str(gate)) for item in range(40)]
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(list, RayPool(address, slow_seconds=1.0).map(calls.square_behind_a_gate, items))
        try:
            wait_for("the name of the node", lambda: "square_behind_a_gate has been there for" in caplog.text, LONG)
            assert not found.done()
        finally:
            gate.touch()
        assert found.result() == [item**2 for item, *_ in items]
    [node] = set(re.findall(r"node \S+ (\S+) is slow", caplog.text))
    # The id that Ray shows for the node.
    [there] = set(RayPool(address).map(calls.place_unless, [nodes.started[0].mark] * 4)) - {""}
    assert node == there[:8]


def test_an_error_of_the_function_arrives_with_its_class_and_fields(address: str) -> None:
    with pytest.raises(ConfigError, match="spec: field: must be another one") as caught:
        list(RayPool(address).map(calls.refuse, [3]))
    assert caught.value.value == 3


def test_the_call_of_a_worker_that_died_is_made_again(address: str, tmp_path: Path) -> None:
    assert list(RayPool(address).map(calls.die_once, [str(tmp_path / "flag")])) == ["done"]


def test_an_item_over_which_workers_die_again_and_again_is_named(address: str) -> None:
    with pytest.raises(WorkerLost, match=r"calls\.die: a worker process died"):
        list(RayPool(address, retries=1).map(calls.die, ["x"]))


def test_ranks_have_the_threads_of_ranks_of_this_machine(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    here, there = (group.run(calls.variables_in_rank, names, 2) for group in (LocalGroup(), RayGroup(address)))
    assert there == here == [["1", "1", "2"]] * 2


@pytest.mark.parametrize(("name", "n"), [("momentum_and_schedule", 150), ("gradmatch", 600)])
def test_ranks_on_two_nodes_train_the_model_of_two_processes(
    address: str, name: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on machines of several cores: the downsampler solves systems by NumPy's BLAS.
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    case = Case(resumable(name, ranks=2), n)
    data = rows(case.n, 1).data(fast_path=FastPath(cache_bytes=0))
    given: dict[str, Any] = {"task": Task("class"), "seed": 7, "threads": 1, "source": "pipeline p"}
    here, there = (train_in_ranks(group, case.spec, data, **given) for group in (LocalGroup(), RayGroup(address)))
    assert Ended(there).bits == Ended(here).bits


def test_a_node_that_dies_under_one_of_two_ranks_ends_the_attempt_and_the_next_one_goes_on(
    nodes: Nodes, address: str, tmp_path: Path
) -> None:
    case = Case(resumable("momentum_and_schedule", ranks=2), checkpoint=tmp_path / "checkpoint")
    assert case.checkpoint is not None
    nodes.start_node(1)
    ended_after: list[float] = []

    def disturb() -> None:
        wait_for("both ranks", lambda: len(list(tmp_path.glob("rank-*"))) == 2)
        marks = {path.read_text() for path in tmp_path.glob("rank-*")}
        # The first node is the head, without which there is no cluster.
        victim = next(node for node in nodes.started[1:] if node.mark in marks)
        victim.die()
        ended_after.append(time.monotonic())
        (tmp_path / "open").touch()

    thread = threading.Thread(target=disturb)
    thread.start()
    with pytest.raises(WorkerLost):
        RayGroup(address).run(calls.train_and_wait, (case, str(tmp_path), 4), 2)
    seconds = time.monotonic() - ended_after[0]
    thread.join()
    # Not a measurement: by itself a rank would wait far longer.
    assert seconds < calls.FOREVER / 5
    assert case.checkpoint.exists()
    data = rows(case.n, 1).data(fast_path=FastPath(cache_bytes=0))
    given: dict[str, Any] = {"task": Task("class"), "seed": 7, "threads": 1, "source": "pipeline p"}
    whole = train_in_ranks(LocalGroup(), case.spec, data, **given)
    resumed = train_in_ranks(RayGroup(address), case.spec, data, checkpoint=CheckpointFile(case.checkpoint), **given)
    assert Ended(resumed).bits == Ended(whole).bits


def test_a_node_that_dies_in_the_middle_of_calls_loses_none(nodes: Nodes, address: str, tmp_path: Path) -> None:
    victim = nodes.start_node(1)
    results = RayPool(address).map(calls.begin_and_wait, [str(tmp_path)] * 6)

    def begun() -> bool:
        return len(list(tmp_path.glob("begun-*"))) == 3

    def disturb() -> None:
        wait_for("calls on three nodes", begun)
        victim.die()
        (tmp_path / "open").touch()

    thread = threading.Thread(target=disturb)
    thread.start()
    assert len(list(results)) == 6
    thread.join()


@pytest.mark.parametrize("resources", [Resources(cpus=64), Resources(gpus=1)])
def test_a_cluster_without_a_node_that_is_large_enough_says_so(address: str, resources: Resources) -> None:
    with pytest.raises(NoRoom, match="no node of the cluster is large enough; nodes have 1 CPUs, 0 GPUs"):
        list(RayPool(address).map(calls.square, [1], resources))


def test_more_ranks_than_there_is_room_for_are_refused(address: str) -> None:
    with pytest.raises(NoRoom, match="in 5 ranks needs 5 times"):
        RayGroup(address, patience=3).run(calls.reduce_sum, 1.0, 5)


def test_ranks_meet_and_results_come_by_rank(address: str) -> None:
    assert RayGroup(address).run(calls.reduce_sum, 0.5, 2) == [1.5, 1.5]


def test_all_ranks_share_one_copy_of_their_argument(nodes: Nodes, address: str, tmp_path: Path) -> None:
    # Not above: Ray reads the token once, when it is imported.
    from ray.util.state import list_objects

    gate, content = tmp_path / "open", "x" * 5_000_000
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(RayGroup(address).run, calls.size_in_rank, (str(gate), content), 2)
        try:
            wait_for("the ranks", lambda: run.done() or len(list(tmp_path.glob("open-*"))) == 2)
            # A node of the test before, which died, gives no answer.
            objects = list_objects(nodes.dashboard, raise_on_missing_output=False)
            found = {each.object_id: each.object_size for each in objects}
        finally:
            gate.touch()
        assert run.result() == [len(content)] * 2
    large = [size for size in found.values() if size > 1_000_000]
    assert len(large) == 1
    assert len(content) < large[0] < 1.01 * len(content)


def test_a_rank_that_dies_ends_the_others_within_seconds(address: str) -> None:
    begin = time.monotonic()
    with pytest.raises(WorkerLost, match="second_rank_dies in 2 ranks"):
        RayGroup(address).run(calls.second_rank_dies, LONG, 2)
    assert time.monotonic() - begin < LONG / 2
    # The room is free again.
    assert RayGroup(address).run(calls.reduce_sum, 1.0, 2) == [3.0, 3.0]


def test_a_rank_that_fails_ends_the_others_with_its_error(address: str) -> None:
    with pytest.raises(ConfigError, match="spec: field: must be another one"):
        RayGroup(address).run(calls.second_rank_refuses, LONG, 2)


def check(nodes: Nodes, deployment: Deployment, *options: str):
    environment = {**deployment.environment, **nodes.access}
    return deployment.command("cluster", "check", *options, check=False, environment=environment)


def test_nodes_that_are_alike_get_a_line_each(nodes: Nodes, address: str, deployment: Deployment) -> None:
    # The head notices only after a while that a node of the test before is gone; until then that one has no answer.
    wait_for("the loss of a node", lambda: sum(node["Alive"] for node in connect(address).nodes()) == 2)
    shown = check(nodes, deployment, "--address", nodes.address)
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stdout
    lines = shown.stdout.splitlines()
    assert len(lines) == 3
    facts = "threads of a worker: torch 1, OpenMP 1, BLAS 1; files ok; clock +0.00 s; Postgres ok; no GPU"
    assert all(facts in line for line in lines), shown.stdout
    assert not list((deployment.settings.home / "cluster_check").iterdir())


def test_a_node_that_differs_is_named_with_what_to_do(nodes: Nodes, deployment: Deployment, tmp_path: Path) -> None:
    other = nodes.start_node(1, {"MODYN_HOME": str(tmp_path), "MODYN_POSTGRES_URL": "postgresql://a:b@127.0.0.1:1/x"})
    try:
        shown = check(nodes, deployment, "--address", nodes.address, "--json")
    finally:
        other.end()
    assert shown.returncode == 1
    problems = [each["problems"] for each in json.loads(shown.stdout)]
    [found] = [each for each in problems if each]
    assert "MODYN_HOME must be one folder that all nodes share" in found[0]
    assert "set MODYN_POSTGRES_URL where `ray start` runs" in found[1]


def test_a_process_without_the_token_is_refused(nodes: Nodes, deployment: Deployment) -> None:
    environment = {**deployment.environment, **nodes.access, "RAY_AUTH_TOKEN": "0" * 32}
    shown = deployment.command("cluster", "check", "--address", nodes.address, check=False, environment=environment)
    assert shown.returncode == 1
    assert "no Ray cluster can be used there" in shown.stderr


def test_the_dashboard_listens_on_this_machine_alone_and_wants_the_token(nodes: Nodes) -> None:
    listening = {
        connection.laddr.ip
        for process in nodes.left_over()
        for connection in process.net_connections("tcp")
        if connection.status == "LISTEN" and connection.laddr.port == nodes.ports["dashboard"]
    }
    assert listening == {"127.0.0.1"}
    for token, status in (None, 401), ("wrong", 403), (nodes.token, 200):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        assert requests.get(f"{nodes.dashboard}/api/jobs/", headers=headers, timeout=30).status_code == status
