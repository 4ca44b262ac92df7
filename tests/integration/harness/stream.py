"""A stream that somebody delivers to running programs, and the comparison of what they made of it with a replay."""

import os
import re
import signal
from pathlib import Path
from typing import Final, Protocol

from modyn_dagster.catalog.runs import Mode
from tests.integration.harness.deployment import Deployment
from tests.integration.harness.graphql import GraphQL
from tests.integration.harness.outcome import Outcome, outcome_of
from tests.integration.harness.waiting import wait_for
from tests.pipeline.pending import triggers_to_evaluate
from tests.projects.tiny import batch_text, drop

MODES: Final[tuple[Mode, ...]] = ("live", "replay")
_SECONDS: Final = 600


class Programs(Protocol):
    """Webserver, daemon and whatever else belongs to a deployment."""

    deployment: Deployment
    graphql: GraphQL

    def why(self, *sensors: str) -> str:
        """Report for a person to read when nothing happens."""
        ...


class Stream:
    """Somebody who delivers files, and looks what becomes of them."""

    def __init__(self, servers: Programs, pipeline: str) -> None:
        self.servers = servers
        self.deployment: Deployment = servers.deployment
        self.pipeline = pipeline
        self.sensors = ("new_data__tiny", f"triggering__{pipeline}")

    def why(self) -> str:
        return self.servers.why(*self.sensors)

    def switch_on(self) -> None:
        for sensor in self.sensors:
            self.servers.graphql.start_sensor(sensor)

    def deliver(self, day: int, *, hours_late: float = 0, bad: bool = False) -> str:
        text = batch_text(day, hours_late=hours_late)
        key = f"day_{day:02d}"
        drop(self.deployment.project, key, text.replace("Z,", "Z,not a number,", 1) if bad else text)
        return key

    def wait_until(self, **states: str) -> None:
        """Until these batches are in these states."""
        wait_for(str(states), lambda: states.items() <= self.deployment.states().items(), _SECONDS, self.why)

    def wait_until_trained(self, count: int) -> None:
        def trained() -> bool:
            return sum(row.state == "trained" for row in self.deployment.triggers(self.pipeline, "live")) >= count

        wait_for(f"{count} trained triggers", trained, _SECONDS, self.why)

    def wait_until_decided(self) -> None:
        """Until everything there is has been decided about, trained on and evaluated, and no Dagster run is left."""

        def idle() -> bool:
            run = self.deployment.run(self.pipeline, "live")
            last = self.deployment.platform.view("tiny").last_ordinal
            if run is None or run.last_ordinal < last or triggers_to_evaluate(self.deployment.platform, run):
                return False
            return all(launched["status"] in ("SUCCESS", "FAILURE") for launched in self.servers.graphql.runs())

        wait_for("everything to be done", idle, _SECONDS, self.why)


def kill_training_run(stream: Stream, dagster_run_id: str) -> None:
    """SIGKILL to the process of a Dagster run, as the kernel would when memory is short."""
    for message in stream.servers.graphql.messages(dagster_run_id):
        if found := re.search(r"Started process for run \(pid: (\d+)\)", message):
            os.kill(int(found[1]), signal.SIGKILL)
            return
    raise AssertionError(f"no process found for run {dagster_run_id}")


def compare_with_replay(stream: Stream, home: Path | None = None) -> Outcome:
    """Replay the same batches, in another home if one is named; the live run's outcome, which must be the replay's too."""
    deployment = stream.deployment
    deployment.command("pipeline", "finish", stream.pipeline)
    elsewhere = {} if home is None else {"MODYN_HOME": str(home)}
    deployment.command("pipeline", "replay", stream.pipeline, environment=deployment.environment | elsewhere)
    live, replayed = deployment.run(stream.pipeline, "live"), deployment.run(stream.pipeline, "replay")
    assert live is not None
    assert replayed is not None
    expected = outcome_of(deployment.platform, live)
    assert outcome_of(deployment.platform, replayed) == expected
    assert expected.state == "finished"
    for asset in ("training_set", "model", "evaluation"):
        _, statuses = stream.servers.graphql.partitions([stream.pipeline, asset])
        both = [row.partition_key for mode in MODES for row in deployment.triggers(stream.pipeline, mode)]
        assert sorted(statuses["materializedPartitions"]) == sorted(both)
    return expected
