"""Two hosts with networks and homes of their own, one of which is cut off: they end as this machine alone does.

Hosts are namespaces of this machine (``hosts``): their state is in an object store, Postgres is reached over TCP, and the head of
Ray is on this machine, without a core.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import dagster as dg
import pytest
import s3fs

from modyn_dagster.catalog.runs import list_runs
from modyn_dagster.catalog.triggers import list_triggers
from modyn_dagster.distributed.on_ray.cluster import connect
from modyn_dagster.distributed.on_ray.group import RayGroup
from modyn_dagster.distributed.processes.group import LocalGroup
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.training import FastPath, Task, train_in_ranks
from tests.cluster import calls
from tests.cluster.hosts import Host, Network, needs_hosts, network_of
from tests.cluster.nodes import Nodes, nodes_of
from tests.cluster.relay import relayed
from tests.cluster.replays import SECONDS, launches_of
from tests.conftest import RunningServer
from tests.golden.driving import Site
from tests.integration.harness.deployment import Deployment, deployed
from tests.integration.harness.outcome import Outcome, Predictions, outcome_of, predictions_of
from tests.integration.harness.waiting import wait_for
from tests.model_store.s3 import running
from tests.projects.tiny import Content, batch_text, custom, drop
from tests.training.ranks.together import Case, Ended, rows
from tests.training.resumable import resumable

pytestmark = [pytest.mark.process, pytest.mark.soak("ray"), needs_hosts]

ALONE: Final = "alone"
RANKED: Final = "ranked"
DAYS: Final = 6
KEYS: Final = tuple(f"day_{day:02d}" for day in range(DAYS))
Ends = tuple[Outcome, list[Predictions]]


@dataclass
class Hosts:
    """A deployment, and a cluster of two hosts that work for it."""

    deployment: Deployment
    network: Network
    nodes: Nodes

    def start(self, place: int) -> Host:
        """Start a node with one core on a host."""
        host = self.network.hosts[place]
        self.nodes.start_node(1, host=host)
        return host

    def lost(self, known: set[str]) -> bool:
        """True once the head takes one of these nodes for dead."""
        return not known <= self.nodes.living()


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """While this file is there, pipelines train and train."""
    return tmp_path_factory.mktemp("gate") / "closed"


def pipelines_with(gate: Path) -> list[Content]:
    ranked = custom(RANKED, "tiny_models:GatedSteps", config={"gate": str(gate)}, every=75)
    ranked["training"] |= {"ranks": 2, "checkpoint": {"steps": 1}}
    return [custom(ALONE, "tiny_models:gated", config={"gate": str(gate)}, every=75), ranked]


def deliver(deployment: Deployment, keys: dict[str, str]) -> None:
    for key, text in keys.items():
        drop(deployment.project, key, text)
    platform = deployment.platform
    summary = import_history(platform.engine, platform.home, platform.dataset("tiny"), platform.project.root_of("tiny"))
    assert not summary.failed


def ends(deployment: Deployment, pipeline: str, mode: str, name: str = "") -> Ends:
    with deployment.platform.transaction() as conn:
        [run] = [run for run in list_runs(conn, pipeline) if (run.mode, run.name) == (mode, name)]
    return outcome_of(deployment.platform, run), predictions_of(deployment.platform, run)


@pytest.fixture(scope="module")
def expected(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory, gate: Path) -> dict[str, Ends]:
    """Ends of replays on this machine alone; live runs end the same, but for the cutting of their prediction files."""
    found: dict[str, Ends] = {}
    with deployed(postgres_server, tmp_path_factory.mktemp("live"), pipelines_with(gate)) as deployment:
        site = Site(deployment.platform)
        live = {}
        for day, key in enumerate(KEYS):
            deliver(deployment, {key: batch_text(day)})
            for pipeline in (ALONE, RANKED):
                site.live_until_idle(pipeline)
        for pipeline in (ALONE, RANKED):
            site.finish(pipeline)
            live[pipeline] = ends(deployment, pipeline, "live")[0]
    with deployed(postgres_server, tmp_path_factory.mktemp("replayed"), pipelines_with(gate)) as deployment:
        deliver(deployment, {key: batch_text(day) for day, key in enumerate(KEYS)})
        for pipeline in (ALONE, RANKED):
            Site(deployment.platform).replay(pipeline)
            found[pipeline] = ends(deployment, pipeline, "replay")
            assert found[pipeline][0] == live[pipeline]
            assert len(live[pipeline].models) >= 3
    return found


@contextmanager
def reached_over(network: Network, first: Deployment, home: Path) -> Iterator[Deployment]:
    """The deployment as hosts reach it at this machine's address: Postgres over TCP, and files in an object store."""
    url = first.platform.engine.url
    with relayed(network.address, url) as port, running(network.address) as s3, pytest.MonkeyPatch.context() as patch:
        values = {"AWS_ENDPOINT_URL": s3.endpoint, "AWS_ACCESS_KEY_ID": s3.key, "AWS_SECRET_ACCESS_KEY": s3.secret}
        for name, value in (values | {"AWS_DEFAULT_REGION": "us-east-1"}).items():
            patch.setenv(name, value)
        # Connections to another server that an earlier test has used.
        s3fs.S3FileSystem.clear_instance_cache()
        address = url.set(drivername="postgresql", host=network.address, port=port, query={}, database="postgres")
        written = address.render_as_string(hide_password=False)
        settings = replace(first.settings, home=home, postgres_url=written, postgres_owner_url=None, files=s3.fresh_url())
        there = Deployment(settings)
        try:
            yield there
        finally:
            there.close()


@pytest.fixture(scope="module")
def hosts(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory, gate: Path) -> Iterator[Hosts]:
    folder = tmp_path_factory.mktemp("site")
    (home := folder / "home-of-each").mkdir()
    with (
        network_of(2) as network,
        deployed(postgres_server, folder, pipelines_with(gate)) as first,
        reached_over(network, first, home) as deployment,
        nodes_of(deployment.environment, host=network.address) as nodes,
    ):
        for day, key in enumerate(KEYS):
            drop(deployment.project, key, batch_text(day))
        # The command tells Dagster, too, whose runs are launched.
        deployment.command("dataset", "import", "tiny")
        for host in network.hosts:
            host.own(home)
        nodes.start_head(0)
        found = Hosts(deployment, network, nodes)
        for place in (0, 1):
            found.start(place)
        yield found


@pytest.fixture
def shut(gate: Path) -> Iterator[Path]:
    """The gate, closed until the test opens it."""
    for path in gate.parent.iterdir():
        path.unlink()
    gate.touch()
    yield gate
    gate.unlink(missing_ok=True)


@pytest.fixture
def address(hosts: Hosts) -> Iterator[str]:
    """Address of the cluster; this process leaves it in the end."""
    ray = connect(hosts.nodes.address)
    yield hosts.nodes.address
    ray.shutdown()


def test_ranks_on_two_hosts_train_the_model_of_two_processes(hosts: Hosts, address: str) -> None:
    case = Case(resumable("momentum_and_schedule", ranks=2))
    assert sorted(RayGroup(address).run(calls.host_of_rank, None, 2)) == sorted(host.name for host in hosts.network.hosts)
    data = rows(case.n, 1).data(fast_path=FastPath(cache_bytes=0))
    given: dict[str, Any] = {"task": Task("class"), "seed": 7, "threads": 1, "source": "pipeline p"}
    here, there = (train_in_ranks(group, case.spec, data, **given) for group in (LocalGroup(), RayGroup(address)))
    assert Ended(there).bits == Ended(here).bits


def test_hosts_compare_alike(hosts: Hosts) -> None:
    environment = {**hosts.deployment.environment, **hosts.nodes.access}
    shown = hosts.deployment.command("cluster", "check", "--address", hosts.nodes.address, environment=environment)
    assert all(f"({host.name})" in shown.stdout for host in hosts.network.hosts)


def launches_on(hosts: Hosts):
    return launches_of(hosts.deployment, (KEYS[0], KEYS[-1]), {"address": hosts.nodes.dashboard, "lost_seconds": 60})


def test_live_equals_replay_equals_replays_on_two_hosts(hosts: Hosts, shut: Path, expected: dict[str, Ends]) -> None:
    with launches_on(hosts) as launches:
        both = {name: launches.replay(ALONE, name) for name in ("first", "second")}

        def nodes_of_jobs() -> set[str] | None:
            found = {launches.job(run_id).driver_node_id for run_id in both.values()}
            return found if None not in found else None

        places = wait_for("both jobs", nodes_of_jobs, SECONDS)
        shut.unlink()
        for name, run_id in both.items():
            assert launches.ended(run_id) == dg.DagsterRunStatus.SUCCESS, launches.story(run_id)
            assert ends(hosts.deployment, ALONE, "replay", name) == expected[ALONE]
    assert len(places) == 2, "each replay had a host of its own"
    # Each host has read through copies of its own, and this machine through others.
    for host in hosts.network.hosts:
        assert any((host.folders[hosts.deployment.settings.home] / "cache").rglob("*.arrow"))


def replayed(hosts: Hosts, name: str) -> "dict[str, str]":
    environment = {**hosts.deployment.environment, **hosts.nodes.access, "MODYN_RANKS": f"ray:{hosts.nodes.address}"}
    result = hosts.deployment.command("pipeline", "replay", RANKED, "--name", name, environment=environment)
    return {"stdout": result.stdout, "stderr": result.stderr}


def test_a_host_that_is_cut_off_under_a_rank_ends_the_attempt_and_the_next_one_goes_on(
    hosts: Hosts, shut: Path, expected: dict[str, Ends]
) -> None:
    known, (_, cut) = hosts.nodes.living(), hosts.network.hosts
    with ThreadPoolExecutor(1) as pool:
        replay = pool.submit(replayed, hosts, "ranks")
        try:
            wait_for("both ranks", lambda: replay.done() or len(list(shut.parent.glob("closed.host*"))) == 2, SECONDS)
            assert not replay.done(), replay.result()
            cut.cut_off()
            wait_for("the loss of the host", lambda: hosts.lost(known), SECONDS)
        finally:
            shut.unlink()
            cut.join()
        hosts.start(1)
        replay.result()
    assert ends(hosts.deployment, RANKED, "replay", "ranks") == expected[RANKED]
    with hosts.deployment.platform.transaction() as conn:
        [run] = [run for run in list_runs(conn, RANKED) if run.name == "ranks"]
        attempts = [trigger.attempt for trigger in list_triggers(conn, run.id)]
    assert attempts == [2, *[1] * (len(attempts) - 1)]


def test_a_host_that_is_cut_off_under_a_replay_changes_nothing(hosts: Hosts, shut: Path, expected: dict[str, Ends]) -> None:
    known = hosts.nodes.living()
    with launches_on(hosts) as launches:
        first = launches.replay(ALONE, "cut")
        launches.trains(first, shut)
        node = launches.job(first).driver_node_id
        there = hosts.nodes.addresses()[node]
        place, cut = next((place, host) for place, host in enumerate(hosts.network.hosts) if host.address == there)
        cut.cut_off()
        try:
            wait_for("the loss of the host", lambda: hosts.lost(known), SECONDS)
            wait_for("the loss of the run", lambda: launches.health(first) == "FAILED", SECONDS)
            run = launches.instance.get_run_by_id(first)
            assert run is not None
            launches.instance.report_run_failed(run)
            shut.with_suffix(".waited").unlink()
            second = launches.replay(ALONE, "cut")
            launches.trains(second, shut)
        finally:
            cut.join()
            shut.unlink()
        # The first run may go on, if Ray has not ended it yet; its claim is gone.
        assert launches.ended(second) == dg.DagsterRunStatus.SUCCESS, launches.story(second)
    assert ends(hosts.deployment, ALONE, "replay", "cut") == expected[ALONE]
    hosts.start(place)
