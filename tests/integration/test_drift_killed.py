"""A drift pipeline in production: measuring runs are killed and Postgres goes away; every trigger trains once."""

import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from modyn_dagster.catalog.decisions import list_decisions
from modyn_dagster.catalog.models import list_models
from modyn_dagster.catalog.runs import Mode
from modyn_dagster.pipeline.due import evaluation_due
from tests.conftest import RunningServer
from tests.integration.harness.deployment import Deployment, deployed
from tests.integration.harness.outcome import outcome_of
from tests.integration.harness.servers import Servers, served
from tests.integration.harness.waiting import wait_for
from tests.projects.tiny import Content, batch_text, drop, triggered

NAME: Final = "gated"
SENSORS: Final = ("new_data__tiny", f"triggering__{NAME}")
DRIFT: Final = {
    "kind": "drift",
    "every": 20,
    "windows": {"by": "amount", "reference": 60, "current": 20},
    "metrics": {"mmd": {"metric": "mmd"}},
    "features": {"of": "columns"},
    "decision": {"rule": "threshold", "value": 0.4},
}


def pipeline(gate: Path) -> Content:
    """While the file ``gate`` is there, building its model takes for ever: to train it and to measure with it."""
    content = triggered(NAME, DRIFT)
    content["training"]["model"] = {"factory": "tiny_models:gated", "config": {"gate": str(gate)}}
    return content


class Stream:
    """Somebody who delivers files, and looks what becomes of them."""

    def __init__(self, deployment: Deployment, servers: Servers) -> None:
        self.deployment, self.servers = deployment, servers

    def deliver(self, day: int, shift: float = 0.0) -> None:
        drop(self.deployment.project, f"day_{day:02d}", batch_text(day, shift=shift))

    def wait(self, what: str, found: object) -> object:
        return wait_for(what, found, 240, lambda: self.servers.why(*SENSORS))  # type: ignore[arg-type]

    def runs(self) -> list[Mapping[str, Any]] | None:
        """Dagster's runs; None where the webserver finds one of its connections dead, as it does with each after a restart."""
        try:
            return self.servers.graphql.runs()
        except AssertionError:
            return None

    def decided(self) -> bool:
        """Whether everything there is has been decided about, trained on and evaluated."""
        run = self.deployment.run(NAME, "live")
        batches = len(list((self.deployment.project / "data").glob("*.csv")))
        if run is None or run.last_ordinal + 1 < batches or evaluation_due(self.deployment.platform, run):
            return False
        launched = self.runs()
        return launched is not None and all(run["status"] in ("SUCCESS", "FAILURE") for run in launched)

    def kill_measuring(self) -> None:
        """SIGKILL to the process of a measuring run, once it is at work."""

        def pid() -> int | None:
            for launched in self.runs() or []:
                tags = {tag["key"]: tag["value"] for tag in launched["tags"]}
                if "modyn/measurement" in tags and launched["status"] == "STARTED":
                    messages = self.servers.graphql.messages(launched["id"])
                    started = [found[1] for text in messages if (found := re.search(r"for run \(pid: (\d+)\)", text))]
                    if started and any(f'step "{NAME}__measurement"' in text for text in messages):
                        return int(started[0])
            return None

        found = self.wait("a measuring run", pid)
        os.kill(int(str(found)), signal.SIGKILL)


def test_killed_measuring_and_a_lost_database_change_no_decision_and_no_model(own_server: RunningServer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with deployed(own_server, tmp_path, [pipeline(gate)]) as deployment, served(deployment) as servers:
        stream = Stream(deployment, servers)
        for sensor in SENSORS:
            servers.graphql.start_sensor(sensor)
        stream.deliver(0)
        stream.wait("the first day", stream.decided)

        gate.touch()
        stream.deliver(1)
        stream.kill_measuring()
        gate.unlink()
        stream.wait("the day whose measuring was killed", stream.decided)
        _, statuses = servers.graphql.partitions([NAME, "measurement"])
        assert sorted(statuses["materializedPartitions"]) == ["day_00", "day_01"]

        os.kill(int(own_server.embedded.status().pid or 0), signal.SIGKILL)
        stream.deliver(2, shift=4)
        wait_for("Postgres to be gone", lambda: not own_server.embedded.is_running(), 30)
        assert own_server.embedded.start().started_by_us
        stream.wait("drift", lambda: len(deployment.triggers(NAME, "live")) > 1)
        stream.wait("the day with drift", stream.decided)

        deployment.command("pipeline", "finish", NAME)
        deployment.command("pipeline", "replay", NAME)
        modes: tuple[Mode, ...] = ("live", "replay")
        outcomes, decisions, models = [], [], []
        for mode in modes:
            run = deployment.run(NAME, mode)
            assert run is not None
            outcomes.append(outcome_of(deployment.platform, run))
            with deployment.platform.transaction() as conn:
                rows = list_decisions(conn, run.id)
                models.append([model.ordinal for model in list_models(conn, run.id)])
            decisions.append([(row.point, row.fire, row.reason, row.score, row.details) for row in rows])
        assert outcomes[0] == outcomes[1]
        assert decisions[0] == decisions[1]
        assert len(decisions[0]) == 6
        assert models[0] == models[1] == [trigger.ordinal for trigger in deployment.triggers(NAME, "live")]
        assert len(models[0]) >= 2
