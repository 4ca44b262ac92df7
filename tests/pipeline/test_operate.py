"""An operator stops a live run, lets it go on, and begins it anew."""

import pytest

from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.runs import RunRow, get_run
from modyn_dagster.errors import LostClaim, RunError, UnknownName
from modyn_dagster.keys import ORIGIN, key_of
from modyn_dagster.pipeline.decide.attempts import claim_context, give_up_attempt
from modyn_dagster.pipeline.decide.live_run import reset_run, resume_run, stop_run
from modyn_dagster.pipeline.decide.manual_trigger import trigger_now
from modyn_dagster.pipeline.decide.tick import Attempt, tick
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from tests.pipeline.world import World
from tests.projects.tiny import ROWS, amount, timed, write_pipeline
from tests.variants import represented


def live(world: World, name: str = "by_amount") -> RunRow:
    return world.run(name, "live")


@pytest.mark.soak("replays")
def test_a_stopped_run_decides_nothing_until_it_is_resumed_and_then_all_that_came_meanwhile(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    world.live_until_idle("by_amount")
    assert stop_run(world.platform, live(world)).run.state == "stopped"
    world.deliver([1, 2, 3])
    now = world.tick("by_amount")
    assert (now.train, now.evaluate) == (None, False)
    assert "modyn-dagster pipeline resume by_amount" in now.message
    assert live(world).cursor == ROWS - 1
    assert resume_run(world.platform, live(world)).run.state == "active"
    world.live_until_idle("by_amount")
    assert [row.key for row in world.triggers(live(world).id)] == [key_of(day, ROWS - 1) for day in range(4)]
    list(finish_live_run(world.platform, live(world)))
    world.replay("by_amount")
    assert world.outcome(world.run("by_amount", "replay")) == world.outcome(live(world))


def test_an_unfinished_trigger_is_finished_first(world_of):
    world = world_of(amount(every=40))
    world.deliver([0, 1])
    trigger = world.tick("by_amount").train
    stopped = stop_run(world.platform, live(world))
    assert (stopped.run.state, stopped.trigger) == ("stopping", trigger)
    assert stop_run(world.platform, live(world)) == stopped
    assert world.tick("by_amount").train == trigger
    assert trigger is not None
    world.train("by_amount", trigger)
    now = world.tick("by_amount")
    assert (now.run.state, now.train) == ("stopped", None)
    assert len(world.triggers(now.run.id)) == 1


def test_at_once_its_attempt_is_given_up_and_made_up_for_after_resuming(world_of):
    world = world_of(amount(every=40, max_attempts=1))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    claimed = claim_context(world.platform, trigger, "training").trigger
    stopped = stop_run(world.platform, live(world), at_once=True)
    assert stopped.trigger is not None
    assert (stopped.run.state, stopped.trigger.state, stopped.trigger.attempt) == ("stopped", "pending", 2)
    with pytest.raises(LostClaim):
        give_up_attempt(world.platform, stopped.run, claimed, "late")
    assert world.tick("by_amount").train is None
    assert resume_run(world.platform, stopped.run).trigger == stopped.trigger
    assert world.tick("by_amount").train == stopped.trigger


def test_a_trigger_that_fails_while_the_run_stops_is_for_resume_to_try_again(world_of):
    world = world_of(amount(every=40, max_attempts=1))
    world.deliver([0])
    world.tick("by_amount")
    stop_run(world.platform, live(world))
    assert tick(world.platform, "by_amount", lambda *_: Attempt.ENDED).run.state == "waiting"
    assert resume_run(world.platform, live(world)).trigger == world.tick("by_amount").train is not None


def test_with_continue_a_failed_trigger_does_not_keep_it_from_stopping(world_of):
    world = world_of(amount(every=40, max_attempts=1, on_failure="continue"))
    world.deliver([0, 1])
    world.tick("by_amount")
    stop_run(world.platform, live(world))
    now = tick(world.platform, "by_amount", lambda *_: Attempt.ENDED)
    assert (now.run.state, [row.state for row in world.triggers(now.run.id)]) == ("stopped", ["failed"])


def test_a_spec_that_changes_while_the_run_is_stopped_takes_effect_when_it_is_resumed(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    world.live_until_idle("by_amount")
    stop_run(world.platform, live(world))
    write_pipeline(world.folder, amount(every=60))
    world.reload()
    world.deliver([1, 2])
    assert world.tick("by_amount").run.id == 1
    resume_run(world.platform, live(world))
    world.live_until_idle("by_amount")
    assert [(run.id, run.state) for run in map(world.reread, (1, 2))] == [(1, "ended"), (2, "active")]
    assert len(world.triggers(2)) == 1


def test_what_is_over_can_neither_be_stopped_nor_resumed(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    world.live_until_idle("by_amount")
    with pytest.raises(RunError, match="live run 1 of by_amount is active, there is nothing to resume"):
        resume_run(world.platform, live(world))
    list(finish_live_run(world.platform, live(world)))
    with pytest.raises(RunError, match="is finished: there is nothing to stop"):
        stop_run(world.platform, live(world))
    world.replay("by_amount")
    with pytest.raises(RunError, match="replay run 2 of by_amount"):
        stop_run(world.platform, world.run("by_amount", "replay"))


def test_only_the_sensor_begins_the_run_of_a_changed_spec(world_of):
    """A command has read the change, the sensor's process has not yet: they would end each other's runs."""
    world = world_of(amount(every=40))
    world.deliver([0])
    world.live_until_idle("by_amount")
    write_pipeline(world.folder, amount(every=60))
    world.reload()
    for command in (trigger_now, reset_run):
        with pytest.raises(RunError, match="the spec of by_amount has changed since live run 1 of by_amount began"):
            command(world.platform, "by_amount")
    assert live(world).state == "active"
    world.tick("by_amount")
    assert reset_run(world.platform, "by_amount").new.id == 3


@represented("pipeline", {each["name"]: each for each in (amount(every=40), timed(every="1d"))}, "replays", "by_time")
def test_a_reset_run_is_one_that_began_anew(world_of, pipeline):
    world, name = world_of(pipeline), pipeline["name"]
    world.deliver([0, 1, 2])
    world.live_until_idle(name)
    before = world.outcome(live(world, name))
    reset = reset_run(world.platform, name)
    assert (reset.first, reset.new.origin, reset.new.previous_model) == ("day_00", ORIGIN, None)
    assert world.reread(reset.old.id).state == "ended"
    world.live_until_idle(name)
    assert live(world, name).id == reset.new.id
    assert world.outcome(live(world, name)) == before == world.outcome(reset.old)


@pytest.mark.soak("replays")
def test_a_run_can_be_reset_to_any_batch(world_of):
    world = world_of(amount(every=40))
    world.deliver([0, 1, 2])
    world.live_until_idle("by_amount")
    with pytest.raises(UnknownName, match="no batch 'day_09'"):
        reset_run(world.platform, "by_amount", "day_09")
    reset_run(world.platform, "by_amount", "day_02")
    world.live_until_idle("by_amount")
    list(finish_live_run(world.platform, live(world)))
    world.replay("by_amount", ["day_02"])
    assert world.outcome(world.run("by_amount", "replay")) == world.outcome(live(world))
    with world.platform.transaction() as conn:
        assert len(list_models(conn, live(world).id)) == 1


def test_a_reset_that_would_lose_a_training_says_so(world_of):
    world = world_of(amount(every=40))
    with pytest.raises(RunError, match="by_amount has no live run"):
        reset_run(world.platform, "by_amount")
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    claimed = claim_context(world.platform, trigger, "training").trigger
    with pytest.raises(RunError, match="still has to train trigger 000001-000000"):
        reset_run(world.platform, "by_amount")
    reset = reset_run(world.platform, "by_amount", at_once=True)
    assert reset.given_up is not None
    assert (reset.given_up.state, reset.given_up.error) == ("failed", "given up: an operator reset the run")
    with pytest.raises(LostClaim):
        give_up_attempt(world.platform, reset.old, claimed, "late")
    with world.platform.transaction() as conn:
        assert get_run(conn, reset.old.id).state == "ended"
    assert world.tick("by_amount").train is not None
