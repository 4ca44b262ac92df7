"""Replays with workers in processes of their own: the same end, also when a worker or the replay itself is killed."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psutil
import pytest

from modyn_dagster.distributed.processes.pool import ProcessPool
from modyn_dagster.pipeline.platform import ahead_path
from modyn_dagster.pipeline.replay.run import ReplayRequest
from modyn_dagster.pipeline.replay.walk import replay
from modyn_dagster.pipeline.stages.trigger_stages import StageResult
from tests.distributed.children import workers_of
from tests.pipeline.same_end import Ended, end_of, forget_evaluations, replayed
from tests.pipeline.world import World
from tests.projects.tiny import Content, amount, custom, triggered

pytestmark = [pytest.mark.process, pytest.mark.soak("distributed")]

SPLIT = {"train": 0.6, "calibrate": 0.1, "evaluate": 0.3}


def pipeline(**training: Any) -> Content:
    content = triggered("tried", {"kind": "amount", "every": 30}, selection={"limit": 25})
    content["training"] |= {"checkpoint": {"steps": 2}} | training
    content["evaluation"] |= {"matrix": "composite"}
    return content


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool]:
    with ProcessPool(3) as opened:
        yield opened


def alone_in(world: World) -> Ended:
    """End of a replay of one process, whose scores are gone afterwards."""
    ended = replayed(world, "tried", "alone")
    forget_evaluations(world)
    return ended


def test_a_replay_with_processes_ends_as_one_without(world_of, pool: ProcessPool) -> None:
    world = world_of(pipeline(), split=SPLIT)
    world.deliver(range(6))
    alone = alone_in(world)
    assert replayed(world, "tried", "workers", pool) == alone
    assert len(alone.outcome["models"]) == 4


@pytest.mark.parametrize("content", ["network", "user_code", "time", "rtbs", "exact"])
def test_processes_give_the_same_bits(world_of, pool: ProcessPool, content: str) -> None:
    contents = {
        "network": pipeline(epochs=20),
        "user_code": custom("tried", "tiny_models:linear", every=30),
        "time": pipeline() | {"trigger": {"kind": "time", "every": "1d"}},
        "rtbs": pipeline() | {"selection": {"strategy": {"kind": "rtbs", "n": 40, "decay": {"keep": 0.5, "after": "1d"}}}},
        "exact": amount("tried", every=30, evaluation=pipeline()["evaluation"] | {"matrix": "full", "predictions": "exact"}),
    }
    world = world_of(contents[content], split=SPLIT)
    world.deliver(range(6))
    alone = alone_in(world)
    assert replayed(world, "tried", "workers", pool) == alone


@pytest.mark.parametrize("killed_after", [0, 2])
def test_killed_workers_change_nothing(world_of, killed_after: int) -> None:
    world = world_of(pipeline(epochs=60), split=SPLIT)
    world.deliver(range(6))
    alone = alone_in(world)
    with ProcessPool(2) as pool:
        models = 0
        for event in replay(world.platform, ReplayRequest("tried", world.keys(), "run", name="workers"), pool=pool):
            if isinstance(event, StageResult) and event.stage == "model":
                if models == killed_after:
                    for worker in workers_of(os.getpid()):
                        worker.kill()
                models += 1
    assert end_of(world, world.run_named("tried", "workers")) == alone


PROGRAM = """
import sys
from modyn_dagster.distributed.opening import open_pool
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.replay.run import ReplayRequest
from modyn_dagster.pipeline.replay.walk import replay
from modyn_dagster.settings import Settings
from tests.projects.tiny import DATASET
platform = Platform.open(Settings.from_environment())
keys = [batch.partition_key for batch in platform.view(DATASET).batches]
with open_pool(platform.settings.workers) as pool:
    for event in replay(platform, ReplayRequest("tried", keys, sys.argv[1], name="workers"), pool=pool):
        print(type(event).__name__, flush=True)
"""


def killed_replay(world: World, launch: str, workers: str, lines: int) -> list[psutil.Process]:
    """Start a replay in a process of its own, kill it after so many events, and return the workers that it had."""
    environment = os.environ | world.settings.environment() | {"MODYN_WORKERS": workers}
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", PROGRAM, launch]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        for _ in range(lines):
            assert process.stdout.readline()
        workers_left: list[Any] = workers_of(process.pid)
        process.kill()
    return workers_left


@pytest.mark.parametrize(("first", "second", "lines"), [("3", "1", 3), ("1", "2", 8), ("2", "", 5)])
def test_a_killed_replay_goes_on_with_another_number_of_workers(world_of, first: str, second: str, lines: int) -> None:
    world = world_of(pipeline(epochs=60), split=SPLIT)
    world.deliver(range(6))
    alone = alone_in(world)
    left = killed_replay(world, "first", first, lines)
    _, alive = psutil.wait_procs(left, timeout=20)
    assert alive == []
    left = killed_replay(world, "second", second, lines + 2)
    _, alive = psutil.wait_procs(left, timeout=20)
    assert alive == []
    with ProcessPool(2) as pool:
        ended = replayed(world, "tried", "workers", pool)
    # Attempts that were killed are in the ledger, too.
    assert replace(ended, stages={}) == replace(alone, stages={})
    run = world.run_named("tried", "workers")
    assert [*(world.platform.home / ahead_path(run.id, 0)).parent.glob("*")] == []


def test_workers_killed_over_parts_of_a_prediction_change_nothing(world_of) -> None:
    content = amount("tried") | {"trigger": {"kind": "amount", "every": 60, "max_triggers": 1}}
    world = world_of(content | {"evaluation": content["evaluation"] | {"predictions": "exact"}}, split=SPLIT)
    world.deliver(range(40), rows=6)
    alone = alone_in(world)
    others = workers_of(os.getpid())
    with ProcessPool(2) as pool, ThreadPoolExecutor(1) as thread:
        killing = thread.submit(kill_predicting_workers, others)
        assert replayed(world, "tried", "workers", pool) == alone
        assert killing.result()
    assert len(alone.predictions) == 1


def kill_predicting_workers(others: list[psutil.Process]) -> bool:
    """Kill all workers of this process but some as soon as there are two, which predict: a single one trains before."""
    for _ in range(6000):
        found = [worker for worker in workers_of(os.getpid()) if worker not in others]
        if len(found) == 2:
            for worker in found:
                worker.kill()
            return True
        time.sleep(0.01)
    return False
