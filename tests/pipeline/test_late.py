"""Late and out-of-order files: later batches that change nothing that was decided, and are counted."""

import numpy as np
import pytest

from modyn_dagster.data.batch_index import count_late, late_by_batch
from modyn_dagster.pipeline.checks import samples_in_order
from tests.projects.tiny import DATASET, ROWS, amount, batch_text, drop, timed


def brute_force(view) -> dict[int, int]:
    """Sample by sample: whether its time lies before the largest one of all earlier batches."""
    late, reached = {}, None
    for batch in view.batches:
        times = view.times(batch)
        late[batch.ordinal] = 0 if reached is None else int(sum(time < reached for time in times))
        reached = times.max() if reached is None else max(reached, times.max())
    return late


def test_late_samples_are_those_before_what_earlier_batches_had_reached(world_of):
    world = world_of(amount())
    # The day before the first one is late as a whole, times five hours later than those there are in part.
    for days, hours in (([1], 0), ([0], 0), ([2], 0), ([2], -5), ([3], 25), ([9], 0), ([4], 0.5)):
        world.deliver(days, hours_late=hours)
    view = world.platform.view(DATASET)
    late = late_by_batch(world.platform.home, view.batches)
    assert late == brute_force(view)
    assert [late[ordinal] for ordinal in (0, 1, 2, 5, 6)] == [0, ROWS, 0, 0, ROWS]
    assert 0 < late[3] < ROWS


def test_a_sample_at_the_very_time_reached_is_not_late(world_of):
    world = world_of(amount())
    world.deliver([0])
    drop(world.folder, "once_more", batch_text(0))
    world.deliver([])
    view = world.platform.view(DATASET)
    assert np.array_equal(*map(view.times, view.batches))
    assert late_by_batch(world.platform.home, view.batches) == {0: 0, 1: ROWS - 1}


def test_the_first_batch_is_never_late(world_of):
    world = world_of(amount())
    world.deliver([5])
    [batch] = world.platform.view(DATASET).batches
    assert count_late(world.platform.home, batch, None) == 0
    assert samples_in_order(batch, 0).passed
    assert not samples_in_order(batch, 3).passed
    assert not samples_in_order(batch, 3).blocking


@pytest.mark.soak("replays")
def test_late_files_change_nothing_that_was_decided(world_of):
    """Neither triggers, training sets, models nor the keys of samples; they count from where they arrived."""
    world = world_of(amount(every=40), timed(every="1d"))
    world.deliver([0, 1, 3])
    for name in ("by_amount", "by_time"):
        world.live_until_idle(name)
    before = {name: world.outcome(world.run(name, "live")) for name in ("by_amount", "by_time")}
    world.deliver([2], hours_late=6)
    world.deliver([4])
    for name, then in before.items():
        world.live_until_idle(name)
        now = world.outcome(world.run(name, "live"))
        for part in ("triggers", "training_sets", "models"):
            assert now[part][: len(then[part])] == then[part]
        assert len(now["triggers"]) > len(then["triggers"])
    assert late_by_batch(world.platform.home, world.platform.view(DATASET).batches)[3] == ROWS
