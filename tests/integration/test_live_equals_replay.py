"""Live equals replay: fed through the sensors or replayed, a pipeline does the same, bit for bit."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from modyn_dagster.catalog.runs import Mode
from modyn_dagster.keys import key_of
from tests.conftest import RunningServer
from tests.integration.harness.deployment import Deployment, deployed
from tests.integration.harness.outcome import Outcome, outcome_of
from tests.integration.harness.servers import Servers, served
from tests.integration.harness.waiting import wait_for
from tests.pipeline.pending import triggers_to_evaluate
from tests.projects.tiny import ROWS, batch_text, custom, drop, timed

PIPELINES: Final = ("gated", "by_time")
SENSORS: Final = ("new_data__tiny", *(f"triggering__{name}" for name in PIPELINES))
MODES: Final[tuple[Mode, ...]] = ("live", "replay")
BAD: Final = "day_02"
_SECONDS: Final = 600


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """While this file is there, the pipeline ``gated`` trains and trains."""
    return tmp_path_factory.mktemp("gate") / "closed"


@pytest.fixture(scope="module")
def servers(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory, gate: Path) -> Iterator[Servers]:
    pipelines = [custom("gated", "tiny_models:gated", config={"gate": str(gate)}), timed("by_time")]
    with (
        deployed(postgres_server, tmp_path_factory.mktemp("live"), pipelines) as deployment,
        served(deployment) as servers,
    ):
        yield servers


class Stream:
    """Somebody who delivers files, and looks what becomes of them."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.deployment: Deployment = servers.deployment

    def why(self) -> str:
        return self.servers.why(*SENSORS)

    def deliver(self, day: int, *, hours_late: float = 0, bad: bool = False) -> str:
        text = batch_text(day, hours_late=hours_late)
        key = f"day_{day:02d}"
        drop(self.deployment.project, key, text.replace("Z,", "Z,not a number,", 1) if bad else text)
        return key

    def wait_until(self, **states: str) -> None:
        """Until these batches are in these states."""
        wait_for(str(states), lambda: states.items() <= self.deployment.states().items(), _SECONDS, self.why)

    def wait_until_trained(self, pipeline: str, count: int) -> None:
        def trained() -> bool:
            return sum(row.state == "trained" for row in self.deployment.triggers(pipeline, "live")) >= count

        wait_for(f"{count} trained triggers of {pipeline}", trained, _SECONDS, self.why)

    def wait_until_decided(self, pipeline: str) -> None:
        """Until everything there is has been decided about, trained on and evaluated, and no Dagster run is left."""

        def idle() -> bool:
            run = self.deployment.run(pipeline, "live")
            last = self.deployment.platform.view("tiny").last_ordinal
            if run is None or run.last_ordinal < last or triggers_to_evaluate(self.deployment.platform, run):
                return False
            return all(launched["status"] in ("SUCCESS", "FAILURE") for launched in self.servers.graphql.runs())

        wait_for(f"{pipeline} to be done with everything", idle, _SECONDS, self.why)


def kill_training_run(stream: Stream, dagster_run_id: str) -> None:
    """SIGKILL to the process of a Dagster run, as the kernel would when memory is short."""
    for message in stream.servers.graphql.messages(dagster_run_id):
        if found := re.search(r"Started process for run \(pid: (\d+)\)", message):
            os.kill(int(found[1]), signal.SIGKILL)
            return
    raise AssertionError(f"no process found for run {dagster_run_id}")


def compare_with_replay(stream: Stream, pipeline: str) -> Outcome:
    """Replay the same batches; the live run's outcome, which must be the replay's too."""
    deployment = stream.deployment
    deployment.command("pipeline", "finish", pipeline)
    deployment.command("pipeline", "replay", pipeline)
    live, replayed = deployment.run(pipeline, "live"), deployment.run(pipeline, "replay")
    assert live is not None
    assert replayed is not None
    expected = outcome_of(deployment.platform, live)
    assert outcome_of(deployment.platform, replayed) == expected
    assert expected.state == "finished"
    for asset in ("training_set", "model", "evaluation"):
        _, statuses = stream.servers.graphql.partitions([pipeline, asset])
        both = [row.partition_key for mode in MODES for row in deployment.triggers(pipeline, mode)]
        assert sorted(statuses["materializedPartitions"]) == sorted(both)
    return expected


def test_fed_through_the_sensors_and_replayed_a_pipeline_ends_the_same(servers: Servers, gate: Path) -> None:
    stream, deployment = Stream(servers), servers.deployment
    for sensor in SENSORS:
        servers.graphql.start_sensor(sensor)
    stream.wait_until(**{stream.deliver(0): "ingested"})

    gate.touch()
    stream.wait_until(**{stream.deliver(1): "ingested", stream.deliver(2, bad=True): "failed", stream.deliver(3): "ingested"})

    def training() -> str | None:
        triggers = deployment.triggers("gated", "live")
        return triggers[0].dagster_run_id if triggers and triggers[0].state == "training" else None

    first_attempt = wait_for("the first training", training, _SECONDS, stream.why)
    # What arrives meanwhile is ingested; nothing is decided about it.
    stream.wait_until(**{stream.deliver(4): "ingested", stream.deliver(5, hours_late=60): "ingested"})
    [trigger] = deployment.triggers("gated", "live")
    run = deployment.run("gated", "live")
    assert run is not None
    assert (trigger.state, trigger.attempt, run.cursor) == ("training", 1, trigger.point)
    kill_training_run(stream, first_attempt)
    gate.unlink()
    stream.wait_until_trained("gated", 2)
    assert deployment.triggers("gated", "live")[0].attempt == 2

    stream.wait_until(**{stream.deliver(6): "ingested"})
    assert stream.deliver(2) == BAD
    stream.wait_until(**{BAD: "failed", f"{BAD}~2": "ingested"})
    assert list(deployment.states())[-1] == f"{BAD}~2"
    for pipeline in PIPELINES:
        stream.wait_until_decided(pipeline)
    gated, timely = (compare_with_replay(stream, pipeline) for pipeline in PIPELINES)
    # 90, 180 and 270 samples of batches of 40, of which the third was bad; the last of them are of its repair.
    assert [key for _, key, *_ in gated.triggers] == [key_of(3, 9), key_of(5, 19), key_of(7, 29)]
    # Ticks at the fourth and the seventh of January; neither the late batch nor the repaired one causes any.
    assert [key for _, key, *_ in timely.triggers] == [key_of(1, ROWS - 1), key_of(5, ROWS - 1)]
