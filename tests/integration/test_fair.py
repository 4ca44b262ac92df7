"""Production beside replays and a training that never end, through the programs that run it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import RunningServer
from tests.integration.harness.deployment import deployed
from tests.integration.harness.servers import Servers, served
from tests.integration.harness.waiting import wait_for
from tests.projects.tiny import DATASET, amount, batch_text, custom, drop

NEW_DATA: Final = f"new_data__{DATASET}"
REPLAYED: Final = ("replayed_one", "replayed_two")
HANGING: Final = "hanging"
QUICK: Final = "quick"
#: Ticks come every second; a run begins some seconds after it was asked for, later on a busy machine.
MOST_TICKS: Final = 60


@pytest.fixture
def gates(tmp_path: Path) -> list[Path]:
    """Files that make two replays and a training hang for as long as they are there."""
    files = [tmp_path / name for name in (*REPLAYED, HANGING)]
    for file in files:
        file.touch()
    return files


@pytest.fixture
def servers(postgres_server: RunningServer, tmp_path: Path, gates: list[Path]) -> Iterator[Servers]:
    hanging = [custom(gate.name, "tiny_models:gated", config={"gate": str(gate)}, every=30) for gate in gates]
    with deployed(postgres_server, tmp_path, [*hanging, amount(QUICK, every=60)]) as deployment, served(deployment) as servers:
        yield servers


def under_way(servers: Servers, run_class: str) -> int:
    """Number of runs of a class that have begun and not ended."""
    runs = [run for run in servers.graphql.runs() if run["status"] == "STARTED"]
    return sum({"key": "modyn/class", "value": run_class} in run["tags"] for run in runs)


@pytest.mark.soak("kills-daemons")
def test_production_goes_on_beside_two_replays_and_a_training_that_hang(servers: Servers, gates: list[Path]) -> None:
    sensors = (NEW_DATA, f"triggering__{HANGING}", f"triggering__{QUICK}")

    def until(event: str, look: Callable[[], bool]) -> None:
        wait_for(event, look, 400, lambda: servers.why(*sensors))

    def n_ticks(sensor: str) -> int:
        return len(servers.graphql.ticks(sensor, 10_000))

    def n_trained(pipeline: str) -> int:
        return sum(trigger.state == "trained" for trigger in servers.deployment.triggers(pipeline, "live"))

    drop(servers.deployment.project, "day_00", batch_text(0))
    for sensor in sensors:
        servers.graphql.start_sensor(sensor)
    until("the first batch", lambda: servers.deployment.states() == {"day_00": "ingested"})
    for pipeline in REPLAYED:
        servers.graphql.launch_backfill([pipeline, "replay"], ["day_00"])
    until("all to hang", lambda: all(gate.with_suffix(".waited").exists() for gate in gates))
    assert (under_way(servers, "replay"), under_way(servers, "training")) == (2, 1)

    before = {sensor: n_ticks(sensor) for sensor in sensors}
    drop(servers.deployment.project, "day_01", batch_text(1))
    until("the second batch", lambda: servers.deployment.states().get("day_01") == "ingested")
    assert n_ticks(NEW_DATA) - before[NEW_DATA] <= MOST_TICKS
    until("the other pipeline to train", lambda: n_trained(QUICK) == 1)
    assert n_ticks(sensors[-1]) - before[sensors[-1]] <= 2 * MOST_TICKS
    assert under_way(servers, "replay") == 2
    assert n_trained(HANGING) == 0
    for gate in gates:
        gate.unlink()
    until("the training to end", lambda: n_trained(HANGING) >= 1)
