"""Production without Dagster: ticks, trainings and the equality with replay."""

import pytest

from modyn_dagster.catalog.runs import get_run
from modyn_dagster.errors import LostClaim, RunError
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.decide.attempts import claim_context
from modyn_dagster.pipeline.decide.tick import Attempt, tick
from modyn_dagster.pipeline.operate.retention import apply_retention
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from tests.pipeline.pending import triggers_to_evaluate
from tests.projects.tiny import amount, timed, write_pipeline


@pytest.mark.parametrize("pipeline", [amount(), timed()], ids=lambda content: content["name"])
def test_live_equals_replay_however_the_batches_arrive(world_of, pipeline):
    world = world_of(pipeline)
    name = pipeline["name"]
    for days in ([0], [1, 2, 3], [], [4], [5, 6, 7]):
        world.deliver(days)
        world.live_until_idle(name)
    world.deliver([2], hours_late=1)
    world.live_until_idle(name)
    list(finish_live_run(world.platform, world.run(name, "live")))
    world.replay(name)
    live, replayed = (world.outcome(world.run(name, mode)) for mode in ("live", "replay"))
    assert live["models"]
    assert live == replayed


def test_a_tick_before_any_data_has_nothing_to_do(world_of):
    world = world_of(amount())
    now = world.tick("by_amount")
    assert (now.train, now.run.cursor) == (None, -1)


def test_while_a_trigger_is_unfinished_nothing_else_is_decided(world_of):
    world = world_of(amount(every=40))
    world.deliver(range(3))
    first = world.tick("by_amount")
    world.deliver([3])
    assert first.train is not None
    assert world.tick("by_amount").train == first.train
    assert len(world.triggers(first.run.id)) == 1
    world.train("by_amount", first.train)
    second = world.tick("by_amount").train
    assert second is not None
    assert ordinal_of(second.key) == 1


def test_an_attempt_whose_dagster_run_ended_is_raised_once(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    assert world.tick("by_amount").train is not None
    ended = {1: Attempt.ENDED}
    now = tick(world.platform, "by_amount", lambda trigger: ended.get(trigger.attempt, Attempt.NONE))
    assert now.train is not None
    assert now.train.attempt == 2
    again = tick(world.platform, "by_amount", lambda trigger: ended.get(trigger.attempt, Attempt.GOING))
    assert again.train == now.train


def test_a_training_that_comes_back_late_cannot_commit(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    late = context_of(world.platform, "by_amount", trigger.partition_key)
    tick(world.platform, "by_amount", lambda *_: Attempt.ENDED)
    with pytest.raises(LostClaim):
        claim_context(world.platform, late.trigger, "late")


def test_materializing_a_trained_trigger_by_hand_must_give_the_same_hash(world_of):
    world = world_of(timed())
    world.deliver(range(8))
    world.live_until_idle("by_time")
    for trigger in world.triggers(world.run("by_time", "live").id, "trained"):
        before = world.outcome(world.run("by_time", "live"))
        world.train("by_time", trigger, "by hand")
        assert world.outcome(world.run("by_time", "live")) == before


@pytest.mark.soak("replays")
def test_a_changed_spec_begins_a_new_run_at_the_cursor_with_the_last_model(world_of):
    world = world_of(amount(every=40))
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    old = world.run("by_amount", "live")
    write_pipeline(world.folder, amount(every=60))
    world.reload()
    world.deliver(range(3, 6))
    world.live_until_idle("by_amount")
    new = world.run("by_amount", "live")
    assert new.id > old.id
    assert (new.origin, new.threads) == (old.cursor, old.threads)
    assert len(world.triggers(new.id)) == 2
    with world.platform.transaction() as conn:
        assert get_run(conn, old.id).state == "ended"


def test_a_changed_description_changes_no_run(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    world.live_until_idle("by_amount")
    write_pipeline(world.folder, amount(every=40, description="in other words", owners=["team:ml"]))
    world.reload()
    assert world.tick("by_amount").run.id == world.run("by_amount", "live").id == 1


def test_start_now_leaves_out_what_was_there_before(world_of):
    world = world_of(amount(every=40, start="now"))
    world.deliver(range(3))
    assert world.tick("by_amount").train is None
    world.deliver([3])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    assert ordinal_of(trigger.key) == 3


def test_models_are_due_until_they_are_judged_on_the_newest_batch(world_of):
    world = world_of(amount(every=40))
    world.deliver([0, 1])
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    assert triggers_to_evaluate(world.platform, run) == []
    world.deliver([2])
    assert len(triggers_to_evaluate(world.platform, world.run("by_amount", "live"))) == 2


@pytest.mark.soak("replays")
def test_retention_removes_old_files_and_what_is_removed_is_not_judged_again(world_of):
    world = world_of(amount(every=40, retention={"training_sets": 1, "predictions": 1}))
    world.deliver(range(4))
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    before = world.outcome(run)
    removed = apply_retention(world.platform)
    assert (removed.training_sets, removed.predictions) == (3, 3)
    assert apply_retention(world.platform).training_sets == 0
    assert len(list((world.platform.home / "training_sets").rglob("*.arrow"))) == 1
    assert world.outcome(run) == before
    world.deliver([4])
    world.live_until_idle("by_amount")
    assert len(triggers_to_evaluate(world.platform, world.run("by_amount", "live"))) == 0


def test_a_finished_run_decides_nothing_more(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    with pytest.raises(RunError, match="still has to train trigger 000001-000000"):
        list(finish_live_run(world.platform, world.run("by_amount", "live")))
    assert trigger is not None
    world.train("by_amount", trigger)
    world.live_until_idle("by_amount")
    list(finish_live_run(world.platform, world.run("by_amount", "live")))
    world.deliver([1])
    now = world.tick("by_amount")
    assert now.train is None
    assert "is finished" in now.message
