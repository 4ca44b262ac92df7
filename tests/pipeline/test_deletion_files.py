"""Training-set files under deletions and purges: replaced, shared by attempts, and gone once nobody needs them."""

import gc
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.deletions import lock_deletions
from modyn_dagster.catalog.runs import pipeline_run
from modyn_dagster.data.split import TRAIN
from modyn_dagster.errors import CorruptFile, LostClaim
from modyn_dagster.ingestion.deletion.delete import replaced_files
from modyn_dagster.keys import ORIGIN, KeyRange, key_of
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.decide.attempts import claim_context, give_up_attempt, working_attempt
from modyn_dagster.pipeline.stages.training_set.stage import select_training_set
from modyn_dagster.pipeline.stages.trigger_stages import model_stage, training_set_stage
from tests.pipeline.deleting import SPLIT, claimed, delete, keys_of, purge, reread
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, ROWS, amount


def stored(world: World, kind: str) -> list[str]:
    return sorted(path.name for path in (world.platform.home / kind / DATASET).iterdir())


def test_a_training_goes_on_with_the_files_it_began_with_and_they_go_once_it_has_ended(world_of):
    world = world_of(amount(every=40, max_attempts=1))
    world.deliver([0, 1])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    context = claimed(world, trigger)
    # Deletions in the batch it trains on, but of samples it never sees: nothing of it was opened yet.
    delete(world, [1 << 32])
    context = replace(context, view=world.platform.view(DATASET))
    purge(world, [1 << 32 | 1])
    purge(world, [1 << 32 | 2, 1 << 32 | 3])
    platform = world.platform
    kept = ["1.1.arrow", "1.arrow"]
    assert [path.name for path in replaced_files(platform.engine, platform.home, context.view.row)] == kept
    assert [name for name in stored(world, "batches") if name.endswith(".deleted")] == [
        "1.1.deleted",
        "1.2.deleted",
        "1.3.deleted",
    ]
    context = training_set_stage(context).context
    assert len(context.view.reader.read(np.array([1 << 32 | 4], dtype=np.uint64)).times) == 1
    assert model_stage(context) is not None
    delete(world, [1 << 32])
    assert stored(world, "batches") == ["0.arrow", "1.2.arrow", "1.2.deleted", "1.3.deleted"]
    assert replaced_files(platform.engine, platform.home, context.view.row) == []


def test_an_attempt_that_meets_a_file_which_was_replaced_does_not_count(world_of):
    world = world_of(amount(every=40, max_attempts=1))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    # Files go, since nothing trains yet when they are replaced.
    context = context_of(world.platform, "by_amount", trigger.partition_key)
    for positions in ([1], [2], [3]):
        purge(world, positions)
    context = replace(context, trigger=claim_context(world.platform, context.trigger, "one").trigger)
    with pytest.raises(CorruptFile, match=r"0\.arrow"), working_attempt(context):
        training_set_stage(context)
    now = reread(world, trigger)
    assert (now.state, now.attempt) == ("pending", 2)
    world.live_until_idle("by_amount")
    assert reread(world, trigger).state == "trained"


def test_an_attempt_that_meets_a_damaged_file_counts(world_of):
    world = world_of(amount(every=40, max_attempts=1))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    purge(world, [1])
    index = world.platform.home / "batches" / DATASET / "0.1.arrow"
    index.write_bytes(index.read_bytes()[:-8])
    context = claimed(world, trigger)
    with pytest.raises(CorruptFile), working_attempt(context):
        training_set_stage(context)
    assert reread(world, trigger).state == "failed"


def test_a_stalled_attempt_leaves_the_training_set_of_the_one_that_followed_alone(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    stalled = claimed(world, trigger)
    give_up_attempt(world.platform, stalled.run, stalled.trigger, "it does not answer")
    delete(world, [7])
    training_set_stage(claimed(world, trigger))
    with pytest.raises(LostClaim):
        select_training_set(stalled)
    assert len(keys_of(world, trigger)) == ROWS - 1
    assert [path.name for path in (world.platform.home / "training_sets" / "000001").iterdir()] == ["000000.arrow"]


def test_a_training_set_whose_commit_fails_is_replaced_by_the_next_selection(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    context = claimed(world, trigger)
    training_set_stage(context)
    give_up_attempt(world.platform, context.run, context.trigger, "boom")
    delete(world, [7])
    context = claimed(world, trigger)
    path = world.platform.home / "training_sets" / "000001" / "000000.arrow"
    before = path.read_bytes()

    def fail(_):
        if path.read_bytes() != before:
            raise ConnectionError("gone")

    sa.event.listen(world.platform.engine, "commit", fail)
    with pytest.raises(ConnectionError), working_attempt(context):
        try:
            training_set_stage(context)
        finally:
            sa.event.remove(world.platform.engine, "commit", fail)
    assert path.read_bytes() != before
    training_set_stage(claimed(world, trigger))
    assert len(keys_of(world, trigger)) == ROWS - 1


def test_a_trained_trigger_may_be_selected_again_by_several_at_once(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    world.live_until_idle("by_amount")
    [trigger] = world.triggers(world.run("by_amount", "live").id, "trained")
    before = keys_of(world, trigger)
    context = context_of(world.platform, "by_amount", trigger.partition_key)
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(select_training_set, context) for _ in range(24)]:
            done.result()
    assert keys_of(world, trigger).tolist() == before.tolist()
    assert [path.name for path in (world.platform.home / "training_sets" / "000001").iterdir()] == ["000000.arrow"]


def test_a_commit_that_waits_for_a_deletion_keeps_nobody_from_the_run(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    context = claimed(world, trigger)
    context = training_set_stage(context).context
    waiting = sa.text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    with ThreadPoolExecutor(1) as threads:
        with world.platform.transaction() as conn:
            lock_deletions(conn, context.view.row.id)
            done = threads.submit(model_stage, context)
            limit = time.monotonic() + 60
            while not conn.execute(waiting).scalar_one() and not done.done() and time.monotonic() < limit:
                time.sleep(0.01)
            assert not done.done()
            row = sa.select(pipeline_run.c.id).where(pipeline_run.c.id == context.run.id)
            assert conn.execute(row.with_for_update(nowait=True)).scalar_one() == context.run.id
        assert done.result() is not None


def test_a_view_that_is_let_go_gives_its_files_back_before_garbage_is_collected(world_of):
    world = world_of(amount(every=60), split=SPLIT)
    world.deliver(range(3))
    window = KeyRange(ORIGIN, key_of(2, ROWS - 1))
    gc.collect()
    gc.disable()
    try:
        view = world.platform.view(DATASET)
        keys = view.keys_on(TRAIN, window)
        view.reader.read(keys)
        held = weakref.ref(view.reader.store)
        delete(world, keys[:1].tolist())
        later = view.renewed()
        assert later is not view
        del view
        assert held() is None
        assert later.keys_on(TRAIN, window).tolist() == keys[1:].tolist()
    finally:
        gc.enable()
