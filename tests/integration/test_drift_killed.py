"""A drift pipeline in production under two daemons, of which one dies in a tick, as do a measuring run and Postgres."""

import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from modyn_dagster.catalog.decisions import list_decisions
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.runs import Mode
from tests.conftest import RunningServer
from tests.integration.harness.deployment import Deployment, deployed
from tests.integration.harness.outcome import Outcome, outcome_of
from tests.integration.harness.servers import Servers, served
from tests.integration.harness.waiting import wait_for
from tests.pipeline.pending import triggers_to_evaluate
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

T = TypeVar("T")


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

    def wait(self, what: str, look: Callable[[], T | None]) -> T:
        return wait_for(what, look, 600, lambda: self.servers.why(*SENSORS))

    def runs(self) -> list[Mapping[str, Any]] | None:
        """Dagster's runs; None where the webserver finds one of its connections dead, as it does with each after a restart."""
        try:
            return self.servers.graphql.runs()
        except AssertionError:
            return None

    def decided(self) -> bool:
        """True if everything there is has been decided about, trained on and evaluated."""
        run = self.deployment.run(NAME, "live")
        batches = len(list((self.deployment.project / "data").glob("*.csv")))
        if run is None or run.last_ordinal + 1 < batches or triggers_to_evaluate(self.deployment.platform, run):
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

        os.kill(self.wait("a measuring run", pid), signal.SIGKILL)

    def kill_in_tick(self, triggers: int) -> None:
        """SIGKILL to the first daemon and its code server at the moment when a tick has committed so many triggers."""
        deadline = time.monotonic() + 600
        while len(self.deployment.triggers(NAME, "live")) < triggers:
            assert time.monotonic() < deadline, self.servers.why(*SENSORS)
            # A tick goes on for much longer after its commit, and without a pause this loop takes a whole core.
            time.sleep(0.01)
        self.servers.kill_first_daemon()

    def ending(self, mode: Mode) -> tuple[Outcome, list[tuple[Any, ...]], list[int]]:
        """Outcome of the newest run in a mode, its decisions, and the triggers that have a model."""
        run = self.deployment.run(NAME, mode)
        assert run is not None
        with self.deployment.platform.transaction() as conn:
            decisions = list_decisions(conn, run.id)
            models = list_models(conn, run.id)
        decided = [(row.point, row.key, row.fire, row.reason, row.score, row.threshold, row.details) for row in decisions]
        return outcome_of(self.deployment.platform, run), decided, [model.ordinal for model in models]


@pytest.mark.soak("kills-daemons")
def test_killed_measuring_a_killed_tick_and_a_lost_database_change_no_decision_and_no_model(
    own_server: RunningServer, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with deployed(own_server, tmp_path, [pipeline(gate)]) as deployment, served(deployment) as servers:
        stream = Stream(deployment, servers)
        servers.start_another_daemon()
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
        wait_for("Postgres to be gone", lambda: not own_server.embedded.is_running(), 60)
        down = deployment.command("pipeline", "status", check=False)
        assert down.returncode == 1
        assert "does not answer" in down.stderr
        # From here on the sensors go on by themselves.
        assert own_server.embedded.start().started_by_us
        stream.kill_in_tick(triggers=2)
        stream.wait("the day with drift", stream.decided)

        deployment.command("pipeline", "finish", NAME)
        deployment.command("pipeline", "replay", NAME)
        outcome, decisions, models = stream.ending("live")
        assert stream.ending("replay") == (outcome, decisions, models)
        assert len(decisions) == 6
        assert models == [trigger[0] for trigger in outcome.triggers] == list(range(len(models)))
        assert len(models) >= 2
