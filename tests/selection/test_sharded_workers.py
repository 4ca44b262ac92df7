"""Shards over processes that die: the end is that of an undisturbed process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np
import psutil
import pytest

from modyn_dagster.distributed.processes.pool import ProcessPool
from modyn_dagster.errors import WorkerLost
from modyn_dagster.selection.time_biased import DRTBS, DTTBS
from modyn_dagster.selection.time_biased.sharded.sharded_sampler import ShardedSampler

pytestmark = [pytest.mark.process, pytest.mark.soak("distributed")]

BATCH = 60_000
#: Few enough that workers make progress between them, however busy the machine is.
KILLS = 5
WORKER = "modyn_dagster.distributed.processes.worker"


def sampler_of(kind: str, pool: ProcessPool | None) -> ShardedSampler:
    if kind == "d_rtbs":
        return DRTBS(200_000, 0.3, 0, shards=5, pool=pool)
    return DTTBS(100_000, 0.3, BATCH, 0, shards=5, pool=pool)


@contextmanager
def killer() -> Iterator[list[int]]:
    """Kill some workers of this process, one every half second; gives their numbers."""
    over, killed = threading.Event(), list[int]()

    def kill() -> None:
        while len(killed) < KILLS and not over.wait(0.5):
            with suppress(psutil.NoSuchProcess):
                workers = [child for child in psutil.Process().children() if WORKER in child.cmdline()]
                for worker in workers[:1]:
                    worker.kill()
                    killed.append(worker.pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("kind", ["d_rtbs", "d_ttbs"])
@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_processes_gives_the_bits_of_this_one(kind, workers):
    plain = sampler_of(kind, None)
    with ProcessPool(workers) as pool:
        dealt = sampler_of(kind, pool)
        for number in range(6):
            keys = np.arange(number * BATCH, (number + 1) * BATCH, dtype=np.uint64) * np.uint64(1 + number % 2)
            plain.update(keys)
            dealt.update(keys)
        assert dealt.state_dict() == plain.state_dict()


@pytest.mark.parametrize("kind", ["d_rtbs", "d_ttbs"])
def test_workers_killed_in_the_middle_change_nothing(kind):
    plain, lost = sampler_of(kind, None), 0
    with ProcessPool(2) as pool, killer() as killed:
        dealt = sampler_of(kind, pool)
        for number in range(300):
            keys = np.arange(number * BATCH, (number + 1) * BATCH, dtype=np.uint64) * np.uint64(2)
            plain.update(keys)
            dealt.update(keys)
            while True:
                try:
                    dealt.flush()
                    break
                except WorkerLost:
                    lost += 1
            if len(killed) == KILLS:
                break
    assert len(killed) >= 2
    assert dealt.state_dict() == plain.state_dict()
