"""Faults of the reference system that show in a whole pipeline and that ours must not have: one test each.

Those of single policies are in ``tests/triggering/test_faults.py``: metrics other than MMD, regret that is never reset, ensembles
that refuse most members, and the first score that always fires.
"""

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.ingestion.registration import register_ready_batches
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, ROWS, amount, batch_text, drop


@pytest.mark.soak("replays")
@pytest.mark.parametrize(
    "intervals",
    [
        {"kind": "tumbling", "every": "1d", "start": "2024-01-01"},
        {"kind": "tumbling", "every": "20m", "start": "2024-01-01"},
        {"kind": "between_triggers"},
    ],
    ids=["every-day", "every-sample", "between-triggers"],
)
def test_samples_at_a_boundary_are_scored_once(world_of, intervals):
    # Every day begins at midnight, so its first sample lies on a boundary; of 20-minute intervals each sample lies on one, alone.
    world = world_of(amount(every=ROWS, evaluation={"intervals": intervals, "metrics": ["accuracy"], "matrix": "full"}))
    world.deliver(range(3))
    world.replay("by_amount")
    cells = world.outcome(world.run("by_amount", "replay"))["evaluations"]
    scored: Counter[int] = Counter()
    for ordinal, *_, n_samples, _, _ in cells:
        scored[ordinal] += n_samples
    assert scored == dict.fromkeys(range(3), 3 * ROWS)


def test_samples_of_the_newest_time_are_not_delivered_again(world_of):
    world = world_of(amount(every=ROWS // 2))
    world.deliver([0, 1])
    for _ in range(4):
        assert looked_twice(world) == [], "nothing new at any look"
    newest = world.folder / "data" / "day_01.csv"
    os.utime(newest, (newest.stat().st_mtime + 60,) * 2)
    assert looked_twice(world) == [], "a file that was touched brings nothing new"
    drop(world.folder, "day_01", batch_text(1))
    assert looked_twice(world) == [], "nor does the same file delivered again"
    world.deliver([2])
    run = world.live_until_idle("by_amount").run
    trained = [keys_of(world, run, trigger) for trigger in world.triggers(run.id, "trained")]
    assert [len(keys) for keys in trained] == [ROWS // 2] * 6
    assert len(np.unique(np.concatenate(trained))) == 3 * ROWS, "every sample is trained on, and once"


def looked_twice(world: World) -> list[Any]:
    """Batches that two looks of the sensor register, the second a minute after the first."""
    spec = world.platform.project.datasets[DATASET]
    state: Mapping[str, Any] | None = None
    registered = []
    for now in (2e9, 2e9 + 60):
        look = register_ready_batches(world.platform.engine, spec, world.platform.project.root_of(DATASET), state, now)
        registered += look.registered
        state = look.state
    return registered


def keys_of(world: World, run, trigger):
    context = context_of(world.platform, run.pipeline, trigger.partition_key)
    with world.platform.transaction() as conn:
        row = find_training_set(conn, trigger.id)
    assert row is not None
    return open_training_set(context, row).keys()
