"""Live equals replay: fed through the sensors or replayed, a pipeline does the same, bit for bit.

Through daemons goes one pipeline, with all that can happen to it; ``tests/pipeline`` and ``tests/golden`` compare every kind
of pipeline within one process.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from modyn_dagster.keys import key_of
from tests.conftest import RunningServer
from tests.integration.harness.deployment import deployed
from tests.integration.harness.servers import Servers, served
from tests.integration.harness.stream import Stream, compare_with_replay, kill_training_run
from tests.integration.harness.waiting import wait_for
from tests.projects.tiny import custom

PIPELINE: Final = "gated"
BAD: Final = "day_02"
_SECONDS: Final = 600


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """While this file is there, the pipeline trains and trains."""
    return tmp_path_factory.mktemp("gate") / "closed"


@pytest.fixture(scope="module")
def servers(postgres_server: RunningServer, tmp_path_factory: pytest.TempPathFactory, gate: Path) -> Iterator[Servers]:
    pipeline = custom(PIPELINE, "tiny_models:gated", config={"gate": str(gate)}, every=75)
    with (
        deployed(postgres_server, tmp_path_factory.mktemp("live"), [pipeline]) as deployment,
        served(deployment) as servers,
    ):
        yield servers


def test_fed_through_the_sensors_and_replayed_a_pipeline_ends_the_same(servers: Servers, gate: Path) -> None:
    stream, deployment = Stream(servers, PIPELINE), servers.deployment
    stream.switch_on()
    stream.wait_until(**{stream.deliver(0): "ingested"})

    gate.touch()
    stream.wait_until(**{stream.deliver(1): "ingested", stream.deliver(2, bad=True): "failed"})

    def training() -> str | None:
        triggers = deployment.triggers(PIPELINE, "live")
        return triggers[0].dagster_run_id if triggers and triggers[0].state == "training" else None

    first_attempt = wait_for("the first training", training, _SECONDS, stream.why)
    # What arrives meanwhile is ingested; nothing is decided about it.
    stream.wait_until(**{stream.deliver(3, hours_late=60): "ingested"})
    [trigger] = deployment.triggers(PIPELINE, "live")
    run = deployment.run(PIPELINE, "live")
    assert run is not None
    assert (trigger.state, trigger.attempt, run.cursor) == ("training", 1, trigger.point)
    kill_training_run(stream, first_attempt)
    gate.unlink()
    assert stream.deliver(2) == BAD
    stream.wait_until(**{BAD: "failed", f"{BAD}~2": "ingested"})
    assert list(deployment.states())[-1] == f"{BAD}~2"
    stream.wait_until_trained(2)
    assert deployment.triggers(PIPELINE, "live")[0].attempt == 2

    stream.wait_until_decided()
    outcome = compare_with_replay(stream)
    # 75 and 150 samples of batches of 40, of which the third was bad and the fourth late; the last of them are of its repair.
    assert [key for _, key, *_ in outcome.triggers] == [key_of(1, 34), key_of(4, 29)]
