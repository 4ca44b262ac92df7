"""A pipeline in production and what people do to it, through the programs that run it."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.batches import batch
from tests.conftest import RunningServer
from tests.integration.harness.deployment import deployed
from tests.integration.harness.servers import Servers, served
from tests.integration.harness.waiting import wait_for
from tests.projects.tiny import batch_text, custom, drop

NAME: Final = "gated"
NOTIFYING: Final = f"notifying__{NAME}"
SENSORS: Final = ("new_data__tiny", f"triggering__{NAME}", NOTIFYING, "freshness__tiny")


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """While this file is there, the pipeline trains and trains."""
    return tmp_path / "closed"


@pytest.fixture
def servers(postgres_server: RunningServer, tmp_path: Path, gate: Path) -> Iterator[Servers]:
    notify = {"hook": "tiny_hooks:noted"}
    pipelines = [custom(NAME, "tiny_models:gated", config={"gate": str(gate)}, every=60, notify=notify)]
    # Five minutes are looked at every 15 seconds.
    with deployed(postgres_server, tmp_path, pipelines, freshness="5m") as deployment, served(deployment) as servers:
        yield servers


class Operator:
    """Somebody at the command line of an installation."""

    def __init__(self, servers: Servers) -> None:
        self.servers, self.deployment = servers, servers.deployment

    def until(self, what: str, look: Callable[[], bool]) -> None:
        wait_for(what, look, 600, lambda: self.servers.why(*SENSORS))

    def command(self, *arguments: str) -> str:
        return self.deployment.command("pipeline", *arguments).stdout

    def deliver(self, day: int) -> None:
        key = f"day_{day:02d}"
        drop(self.deployment.project, key, batch_text(day))
        self.until(f"{key} to be ingested", lambda: self.deployment.states().get(key) == "ingested")

    def age(self, by: timedelta) -> None:
        """Let all data have arrived so much earlier."""
        with self.deployment.platform.transaction() as conn:
            conn.execute(sa.update(batch).values(created_at=batch.c.created_at - by))

    def until_fresh(self, fresh: bool) -> None:
        """Until that is what the check said last."""

        def said() -> bool:
            checks = self.servers.graphql.checks(["tiny", "samples"], "fresh")
            return [row["evaluation"]["success"] for row in checks if row["evaluation"]][:1] == [fresh]

        self.until(f"the check of fresh data to say {fresh}", said)

    def until_trained(self, *reasons: str) -> None:
        """Until these are the triggers of the live run, each of them trained."""

        def trained() -> bool:
            triggers = self.deployment.triggers(NAME, "live")
            return [(row.reason, row.state) for row in triggers] == [(reason, "trained") for reason in reasons]

        self.until(f"{reasons} to be trained", trained)

    def training_run(self) -> str:
        """The Dagster run that trains the newest trigger, once one does."""

        def training() -> str | None:
            triggers = self.deployment.triggers(NAME, "live")
            return triggers[-1].dagster_run_id if triggers and triggers[-1].state == "training" else None

        return wait_for("a training", training, 600, lambda: self.servers.why(*SENSORS))

    def until_cancelled(self, run_id: str) -> None:
        def status() -> str | None:
            return next((run["status"] for run in self.servers.graphql.runs() if run["id"] == run_id), None)

        self.until(f"run {run_id} to be cancelled", lambda: status() == "CANCELED")

    def state(self) -> str:
        run = self.deployment.run(NAME, "live")
        return f"{run.id} {run.state}, batch {run.last_ordinal}" if run else ""

    def heard(self) -> list[str]:
        """Events that the hook has noted."""
        path = self.deployment.settings.home / "heard.txt"
        return path.read_text().splitlines() if path.exists() else []


@pytest.mark.soak("production")
def test_production_is_operated_while_it_runs(servers: Servers, gate: Path) -> None:
    operator = Operator(servers)
    for sensor in SENSORS[:2]:
        servers.graphql.start_sensor(sensor)
    operator.until("the hook to be listening", lambda: bool(servers.graphql.ticks(NOTIFYING)))
    operator.deliver(0)
    operator.until("40 samples to be decided about", lambda: operator.state() == "1 active, batch 0")
    operator.command("trigger", NAME, "--note", "ann")
    operator.until_trained("manual: ann")
    assert "nothing new" in servers.deployment.command("pipeline", "trigger", NAME, check=False).stderr

    operator.command("stop", NAME)
    operator.age(timedelta(hours=1))
    operator.until_fresh(False)
    operator.deliver(1)
    operator.until_fresh(True)
    assert operator.state() == "1 stopped, batch 0"

    gate.touch()
    operator.command("resume", NAME)
    training = operator.training_run()
    operator.until("the training to be at the gate", gate.with_suffix(".waited").exists)
    assert f"Dagster run {training}, which trained 000001-000001, is cancelled" in operator.command("stop", NAME, "--now")
    operator.until_cancelled(training)
    gate.unlink()
    operator.command("resume", NAME)
    operator.until_trained("manual: ann", "60 samples")
    assert [trigger.attempt for trigger in servers.deployment.triggers(NAME, "live")] == [1, 2]
    operator.until("the hook to be told of both", lambda: len(operator.heard()) >= 2)
    assert operator.heard() == ["trigger 000001-000000 manual: ann", "trigger 000001-000001 60 samples"]

    operator.command("reset", NAME, "--yes")
    assert operator.state() == "2 active, batch -1"
    operator.until("the new run to decide", lambda: bool(servers.deployment.triggers(NAME, "live")))
    assert [trigger.reason for trigger in servers.deployment.triggers(NAME, "live")] == ["60 samples"]
    assert f"live run 1 of {NAME}, ended" in operator.command("show", NAME, "--run", "1")
