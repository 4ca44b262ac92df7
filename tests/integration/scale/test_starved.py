"""Sixty pipelines on one dataset under the shipped `dagster.yaml`, beside hanging runs in every slot of replays and trainings."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.conftest import RunningServer
from tests.integration.harness.deployment import deployed
from tests.integration.harness.servers import Servers, served
from tests.integration.harness.waiting import wait_for
from tests.projects.tiny import DATASET, Content, amount, batch_text, custom, drop

NEW_DATA: Final = f"new_data__{DATASET}"
#: Twice as many as there are slots for: replays that hang until the end, and trainings that hang for ever.
REPLAYED: Final = [f"replayed_{n}" for n in range(4)]
HANGING: Final = [f"hanging_{n}" for n in range(4)]
QUICK: Final = [f"quick_{n:02d}" for n in range(12)]
WAITING: Final = [f"waiting_{n:02d}" for n in range(40)]
LIVE: Final = [*HANGING, *QUICK, *WAITING]
#: Slots of a class in `dagster.yaml`.
SLOTS: Final = 2
#: Most ticks from a file to its ingestion, and from there to the training of any other pipeline.
TO_INGEST: Final = 60
TO_TRAIN: Final = 300
#: Most memory of daemon, code server and warm process in bytes, what it may grow by, and the cores that they may keep busy.
MEMORY: Final = 3 * 2**30
GROWTH: Final = 700 * 2**20
CORES: Final = 1.8


def gated(name: str, gate: Path, **fields: str | int) -> Content:
    return custom(name, "tiny_models:gated", config={"gate": str(gate)}, every=30) | fields


def pipelines(gates: dict[str, Path]) -> Iterator[Content]:
    for name in REPLAYED:
        yield gated(name, gates[name])
    for name in HANGING:
        yield gated(name, gates[name], max_run_time="20s", max_attempts=2, sensor_interval=5)
    for name in QUICK:
        yield amount(name, every=60, sensor_interval=5)
    for name in WAITING:
        yield amount(name, every=1_000_000, sensor_interval=30)


@pytest.fixture
def gates(tmp_path: Path) -> dict[str, Path]:
    """Files that make a pipeline hang for as long as they are there."""
    files = {name: tmp_path / name for name in (*REPLAYED, *HANGING)}
    for file in files.values():
        file.touch()
    return files


@pytest.fixture
def servers(postgres_server: RunningServer, tmp_path: Path, gates: dict[str, Path]) -> Iterator[Servers]:
    with deployed(postgres_server, tmp_path, list(pipelines(gates))) as deployment, served(deployment) as servers:
        yield servers


class Crowd:
    """Somebody who looks at all these pipelines."""

    def __init__(self, servers: Servers) -> None:
        self.servers, self.deployment = servers, servers.deployment

    def until(self, event: str, look: Callable[[], bool]) -> None:
        sensors = (NEW_DATA, *map(triggering, (*HANGING, *QUICK)))
        wait_for(event, look, 600, lambda: self.servers.why(*sensors))

    def n_ticks(self, sensor: str) -> int:
        return len(self.servers.graphql.ticks(sensor, 10_000))

    def are_live(self, state: str, names: list[str]) -> bool:
        """True if the first trigger of all these pipelines is in a state."""
        return all([row.state for row in self.deployment.triggers(name, "live")][:1] == [state] for name in names)

    def under_way(self, run_class: str) -> int:
        """Number of runs of a class that have begun and not ended."""
        runs = [run for run in self.servers.graphql.runs() if run["status"] == "STARTED"]
        return sum({"key": "modyn/class", "value": run_class} in run["tags"] for run in runs)

    def replays_finished(self) -> int:
        runs = [self.deployment.run(name, "replay") for name in REPLAYED]
        return sum(run is not None and run.state == "finished" for run in runs)


def triggering(pipeline: str) -> str:
    return f"triggering__{pipeline}"


class Meter:
    """Memory and processor of the daemon and the programs that it keeps, without those of runs."""

    def __init__(self, daemon: psutil.Process) -> None:
        self._daemon = daemon
        self.memory, self._begin, self._used = self._memory(), time.monotonic(), self._seconds()

    def growth(self) -> int:
        """Bytes since the meter was made."""
        return self._memory() - self.memory

    def cores(self) -> float:
        """Cores kept busy since then."""
        return (self._seconds() - self._used) / (time.monotonic() - self._begin)

    def _programs(self) -> Iterator[psutil.Process]:
        # The daemon replaces its code server every minute, and keeps the old one for a while.
        yield from [self._daemon, *self._daemon.children()]

    def _memory(self) -> int:
        total = 0
        for program in self._programs():
            with suppress(psutil.NoSuchProcess):
                total += program.memory_info().rss
        return total

    def _seconds(self) -> float:
        ended = self._daemon.cpu_times()
        total = float(ended.children_user + ended.children_system)
        for program in self._programs():
            with suppress(psutil.NoSuchProcess):
                used = program.cpu_times()
                total += used.user + used.system
        return total


@pytest.mark.soak("scale")
def test_a_file_is_ingested_and_every_pipeline_gets_its_turn_beside_runs_that_hang(
    servers: Servers, gates: dict[str, Path]
) -> None:
    crowd, deployment = Crowd(servers), servers.deployment
    drop(deployment.project, "day_00", batch_text(0))
    for sensor in (NEW_DATA, *map(triggering, LIVE)):
        servers.graphql.start_sensor(sensor)
    crowd.until("the first batch", lambda: deployment.states() == {"day_00": "ingested"})
    for name in REPLAYED:
        servers.graphql.launch_backfill([name, "replay"], ["day_00"])
    crowd.until("replays to hang", lambda: crowd.under_way("replay") == SLOTS)
    crowd.until("trainings to hang", lambda: crowd.under_way("training") == SLOTS)
    meter = Meter(servers.first_daemon())

    begin = {sensor: crowd.n_ticks(sensor) for sensor in (NEW_DATA, *map(triggering, QUICK))}
    drop(deployment.project, "day_01", batch_text(1))
    crowd.until("the second batch", lambda: deployment.states().get("day_01") == "ingested")
    assert crowd.n_ticks(NEW_DATA) - begin[NEW_DATA] <= TO_INGEST
    crowd.until("the others to train", lambda: crowd.are_live("trained", QUICK))
    assert all(crowd.n_ticks(triggering(name)) - begin[triggering(name)] <= TO_TRAIN for name in QUICK)
    assert all(crowd.n_ticks(triggering(name)) > 0 for name in WAITING)
    crowd.until("the hanging trainings to be given up", lambda: crowd.are_live("failed", HANGING))
    assert (crowd.under_way("replay"), crowd.replays_finished()) == (SLOTS, 0)

    assert meter.memory < MEMORY
    growth, cores = meter.growth(), meter.cores()
    assert growth < GROWTH
    assert cores < CORES
    for name in REPLAYED:
        gates[name].unlink()
    crowd.until("every replay to end", lambda: crowd.replays_finished() == len(REPLAYED))
