"""A pipeline in production and what people do to it, through the programs that run it."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.tables import batch
from tests.conftest import RunningServer
from tests.integration.harness.deployment import Deployment, deployed
from tests.integration.harness.servers import Servers, served
from tests.integration.harness.waiting import wait_for
from tests.projects.tiny import amount, batch_text, drop, write_pipeline

NAME = "by_amount"
SENSORS = ("new_data__tiny", f"triggering__{NAME}", f"notifying__{NAME}", "freshness__tiny")
NOTIFY = {"hook": "tiny_hooks:noted"}


@pytest.fixture(scope="module")
def servers(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    pipelines = [amount(every=60, notify=NOTIFY)]
    with (
        deployed(postgres_server, tmp_path_factory.mktemp("operated"), pipelines, freshness="1d") as deployment,
        served(deployment) as servers,
    ):
        yield servers


class Operator:
    """Somebody at the command line of an installation."""

    def __init__(self, servers: Servers) -> None:
        self.servers, self.deployment = servers, servers.deployment

    def until(self, what: str, look: object, seconds: float = 150) -> None:
        wait_for(what, look, seconds, lambda: self.servers.why(*SENSORS))  # type: ignore[arg-type]

    def deliver(self, *days: int) -> None:
        for day in days:
            drop(self.deployment.project, f"day_{day:02d}", batch_text(day))
        last = f"day_{max(days):02d}"
        self.until(f"{last} to be ingested", lambda: self.deployment.states().get(last) == "ingested")

    def triggers(self) -> list[tuple[str, str]]:
        return [(row.reason, row.state) for row in self.deployment.triggers(NAME, "live")]

    def trained(self, *reasons: str) -> None:
        self.until(f"{reasons} to be trained", lambda: self.triggers() == [(reason, "trained") for reason in reasons])

    def state(self) -> str:
        run = self.deployment.run(NAME, "live")
        assert run is not None
        return f"{run.id} {run.state}"


def heard(deployment: Deployment) -> list[str]:
    path = deployment.settings.home / "heard.txt"
    return path.read_text().splitlines() if path.exists() else []


def fresh(servers: Servers) -> list[bool]:
    """How the check went, newest first."""
    return [
        found["evaluation"]["success"] for found in servers.graphql.checks(["tiny", "samples"], "fresh") if found["evaluation"]
    ]


def test_production_is_operated_while_it_runs(servers: Servers) -> None:
    operator, deployment = Operator(servers), servers.deployment
    for sensor in SENSORS[:2]:
        servers.graphql.start_sensor(sensor)
    operator.until("the hook to be listening", lambda: servers.graphql.ticks(SENSORS[2]))
    operator.deliver(0, 1)
    operator.trained("60 samples")

    deployment.command("pipeline", "trigger", NAME, "--note", "ann")
    operator.trained("60 samples", "manual: ann")
    assert "nothing new" in deployment.command("pipeline", "trigger", NAME, check=False).stderr

    deployment.command("pipeline", "stop", NAME)
    operator.deliver(2)
    assert operator.state() == "1 stopped"
    deployment.command("pipeline", "resume", NAME)
    operator.trained("60 samples", "manual: ann", "60 samples")
    operator.until("the hook to be told of all three", lambda: len(heard(deployment)) == 3)
    assert heard(deployment) == [f"trigger 000001-{n:06d} {reason}" for n, (reason, _) in enumerate(operator.triggers())]

    operator.until("the check that data arrive", lambda: fresh(servers)[:1] == [True])
    # The daemon loads a changed file within a minute or two; the check is looked at every minute.
    write_pipeline(deployment.project, amount(every=50, notify=NOTIFY))
    with deployment.platform.transaction() as conn:
        conn.execute(sa.update(batch).values(created_at=sa.func.now() - timedelta(days=2)))
    operator.until("the check that they do no longer", lambda: fresh(servers)[:1] == [False], 240)
    operator.until("a new live run", lambda: operator.state() == "2 active", 240)
    operator.deliver(3, 4)
    operator.trained("50 samples")
    operator.until("the check that data arrive again", lambda: fresh(servers)[:1] == [True])
    assert "live run 2 of by_amount, active" in deployment.command("pipeline", "show", NAME).stdout
