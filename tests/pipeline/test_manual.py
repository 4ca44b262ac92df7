"""Train now: triggers that a person makes, and replays that repeat them."""

from dataclasses import replace

import pytest

from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.errors import RunError, UnknownName
from modyn_dagster.keys import key_of
from modyn_dagster.pipeline.decide.attempts import give_up_attempt
from modyn_dagster.pipeline.decide.manual_trigger import recorded_manual, repeat_manual, trigger_now
from modyn_dagster.pipeline.replay.run import require_same_dataset
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from modyn_dagster.pipeline.training_stream import training_stream
from tests.pipeline.test_attempts import DATASET
from tests.projects.tiny import ROWS, Content, amount, timed, triggered
from tests.variants import represented

LAST = ROWS - 1


def test_it_trains_on_everything_decided_so_far_and_the_sensor_asks_for_the_training(world_of):
    world = world_of(amount(every=90))
    world.deliver([0])
    trigger = trigger_now(world.platform, "by_amount", "ann: the customer asked")
    assert (trigger.key, trigger.point, trigger.manual) == (LAST, LAST, True)
    assert trigger.reason == "manual: ann: the customer asked"
    assert world.tick("by_amount").train == trigger
    world.train("by_amount", trigger)
    run = world.run("by_amount", "live")
    assert run.cursor == LAST
    assert [row.state for row in world.triggers(run.id)] == ["trained"]


def test_the_policys_own_triggers_keep_their_places(world_of):
    """An amount policy counts on from its own last trigger: the 90th sample is in the third batch, whatever a person does."""
    world = world_of(amount(every=90))
    world.deliver([0, 1])
    world.live_until_idle("by_amount")
    trigger_now(world.platform, "by_amount")
    world.live_until_idle("by_amount")
    world.deliver([2])
    world.live_until_idle("by_amount")
    triggers = world.triggers(world.run("by_amount", "live").id)
    assert [(row.reason, row.key) for row in triggers] == [("manual", key_of(1, LAST)), ("90 samples", key_of(2, 9))]


def test_what_the_policy_itself_fires_at_comes_first(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    with pytest.raises(RunError, match=r"unfinished trigger, 000001-000000 \(pending: 40 samples\)"):
        trigger_now(world.platform, "by_amount")
    assert [row.manual for row in world.triggers(world.run("by_amount", "live").id)] == [False]


def test_nothing_new_since_the_last_trigger_is_an_error(world_of):
    world = world_of(amount(every=90))
    with pytest.raises(RunError, match="live run 1 of by_amount has nothing new to train on since its last trigger"):
        trigger_now(world.platform, "by_amount")
    world.deliver([0])
    world.train("by_amount", trigger_now(world.platform, "by_amount"))
    with pytest.raises(RunError, match="nothing new"):
        trigger_now(world.platform, "by_amount")
    world.deliver([1])
    assert trigger_now(world.platform, "by_amount").ordinal == 1


def test_another_one_while_it_is_unfinished_is_an_error(world_of):
    world = world_of(amount(every=90))
    world.deliver([0])
    trigger_now(world.platform, "by_amount")
    world.deliver([1])
    with pytest.raises(RunError, match="try again afterwards"):
        trigger_now(world.platform, "by_amount")


def test_a_run_that_waits_or_is_finished_cannot_be_triggered(world_of):
    world = world_of(amount(every=90, max_attempts=1), timed())
    world.deliver([0])
    trigger = trigger_now(world.platform, "by_amount")
    give_up_attempt(world.platform, world.run("by_amount", "live"), trigger, "boom")
    with pytest.raises(RunError, match="is waiting: waits for `modyn-dagster pipeline resume by_amount`"):
        trigger_now(world.platform, "by_amount")
    world.live_until_idle("by_time")
    list(finish_live_run(world.platform, world.run("by_time", "live")))
    with pytest.raises(RunError, match="is finished"):
        trigger_now(world.platform, "by_time")


def drift() -> Content:
    trigger = {
        "kind": "drift",
        "every": 17,
        "windows": {"by": "amount", "reference": 60, "current": 30},
        "metrics": {"mmd": {"metric": "mmd"}},
        "features": {"of": "embeddings"},
        "decision": {"rule": "quantile", "window": 3, "quantile": 0.3},
    }
    return triggered("by_drift", trigger)


@represented("pipeline", {each["name"]: each for each in (amount(every=90), timed(), drift())}, "replays", "by_amount")
def test_a_replay_repeats_recorded_manual_triggers(world_of, pipeline):
    world = world_of(pipeline)
    name = pipeline["name"]
    for days, now in (([0, 1], True), ([2, 3, 4], False), ([5], True), ([6, 7], False)):
        world.deliver(days)
        world.live_until_idle(name)
        if now:
            world.train(name, trigger_now(world.platform, name, f"after {days}"))
            world.live_until_idle(name)
    live = world.run(name, "live")
    list(finish_live_run(world.platform, live))
    world.replay(name)
    world.replay(name, name="repeated", manual_of=live.id)
    plain, repeated = world.run_named(name, ""), world.run_named(name, "repeated")
    manual = [row for row in world.triggers(live.id) if row.manual]
    assert len(manual) == 2
    assert world.outcome(repeated) == world.outcome(live)
    assert world.decisions(repeated) == world.decisions(live)
    assert [row.reason for row in world.triggers(repeated.id) if row.manual] == [row.reason for row in manual]
    assert not any(row.manual for row in world.triggers(plain.id))


@pytest.mark.soak("replays")
def test_a_manual_trigger_in_the_middle_of_a_batch_is_repeated_there(world_of):
    """After the tick that fired at the first sample of a day, that sample alone is new."""
    world = world_of(timed(every="1d"))
    world.deliver([0, 1])
    first = world.tick("by_time").train
    assert first is not None
    world.train("by_time", first)
    run = world.run("by_time", "live")
    # As if it came between two ticks, before the second one has seen the end of the batch.
    stream = training_stream(world.platform.view("tiny"), run.origin)
    recorded = replace(first, key=run.cursor, reason="manual")
    repeated = repeat_manual(world.platform, run, recorded, stream)
    assert repeated is not None
    manual = repeated[1]
    assert manual.key == run.cursor < key_of(1, LAST)
    world.train("by_time", manual)
    world.live_until_idle("by_time")
    list(finish_live_run(world.platform, world.run("by_time", "live")))
    world.replay("by_time", manual_of=run.id)
    assert world.outcome(world.run("by_time", "replay")) == world.outcome(world.run("by_time", "live"))


@pytest.mark.soak("replays")
def test_a_replay_that_was_killed_after_it_made_a_manual_trigger_makes_no_other(world_of):
    world = world_of(amount(every=90))
    for days in ([0, 1], [2]):
        world.deliver(days)
        world.live_until_idle("by_amount")
        world.train("by_amount", trigger_now(world.platform, "by_amount"))
    live = world.run("by_amount", "live")
    list(finish_live_run(world.platform, live))
    world.replay("by_amount", world.keys()[:1], manual_of=live.id)
    run = world.run("by_amount", "replay")
    stream = training_stream(world.platform.view("tiny", until=1), run.origin)
    [recorded] = recorded_manual(world.platform, run, 1)
    assert repeat_manual(world.platform, run, recorded, stream) is not None
    world.replay("by_amount")
    assert world.outcome(world.run("by_amount", "replay")) == world.outcome(live)


@pytest.mark.soak("replays")
def test_a_replay_under_another_policy_repeats_them_where_something_is_new(world_of):
    world = world_of(amount("by_amount", every=90), amount("often", every=40))
    world.deliver([0, 1])
    world.live_until_idle("by_amount")
    world.train("by_amount", trigger_now(world.platform, "by_amount"))
    live = world.run("by_amount", "live")
    world.replay("often", manual_of=live.id)
    # `often` fires at the last sample of each day by itself, so there is nothing new to train on.
    assert [row.manual for row in world.triggers(world.run("often", "replay").id)] == [False, False]


def test_a_continued_replay_goes_on_with_what_it_began_with(world_of):
    world = world_of(amount(every=90))
    world.deliver([0, 1, 2])
    world.live_until_idle("by_amount")
    trigger_now(world.platform, "by_amount")
    world.live_until_idle("by_amount")
    live = world.run("by_amount", "live")
    world.replay("by_amount", world.keys()[:1], manual_of=live.id)
    world.replay("by_amount")
    replayed = world.run("by_amount", "replay")
    assert [row.manual for row in world.triggers(replayed.id)] == [False, True]
    with pytest.raises(RunError, match=rf"began with manual_of {live.id}, not costs_from {live.id}"):
        world.replay("by_amount", costs_from=live.id)


def test_runs_to_take_from_must_exist_and_be_on_the_same_dataset(world_of):
    world = world_of(amount(every=90))
    world.deliver([0])
    with pytest.raises(UnknownName, match="no pipeline run 77"):
        world.replay("by_amount", manual_of=77)
    world.tick("by_amount")
    with world.platform.transaction() as conn:
        elsewhere = DATASET.model_copy(update={"name": "elsewhere"})
        require_same_dataset(conn, {"costs_from": 1}, world.platform.view("tiny").row.id)
        with pytest.raises(RunError, match="costs_from: live run 1 of by_amount is a run on another dataset"):
            require_same_dataset(conn, {"costs_from": 1}, ensure_dataset(conn, elsewhere).id)
