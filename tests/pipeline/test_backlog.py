"""Backlog of a live run, taken by a run that trains: the same decisions and models as a replay's."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from modyn_dagster.catalog.triggers import TriggerRow
from modyn_dagster.errors import DatabaseDown, DataError
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.decide import backlog, driver
from modyn_dagster.pipeline.decide import tick as ticks
from modyn_dagster.pipeline.decide.attempts import claim_context
from modyn_dagster.pipeline.decide.backlog import train_backlog
from modyn_dagster.pipeline.decide.live_run import stop_run
from modyn_dagster.pipeline.decide.tick import Attempt, tick
from modyn_dagster.pipeline.stages import trigger_stages
from modyn_dagster.pipeline.stages.model.stage import train_model
from modyn_dagster.pipeline.stages.trigger_stages import StageResult, finish_live_run
from tests.pipeline.measuring import delete
from tests.pipeline.world import World
from tests.projects.tiny import ROWS, amount, timed, write_pipeline
from tests.variants import represented


def take(world: World, pipeline: str, goes_on: Callable[[], bool] = lambda: True) -> list[str]:
    """Partition keys of the triggers that a run takes, once for each of their stages."""
    return [result.partition_key for result in train_backlog(world.platform, pipeline, "dagster-run", goes_on)]


@represented("pipeline", {each["name"]: each for each in (amount(every=40), timed(every="1d"))}, "replays", "by_time")
def test_a_backlog_taken_by_one_run_ends_as_a_replay(world_of, pipeline):
    world, name = world_of(pipeline), pipeline["name"]
    world.deliver(range(5))
    first = world.tick(name).train
    assert first is not None
    world.train(name, first)
    taken = take(world, name)
    live = world.run(name, "live")
    keys = [trigger.partition_key for trigger in world.triggers(live.id, "trained")]
    assert taken == [key for key in keys[1:] for _ in range(3)]
    assert len(keys) > 3
    list(finish_live_run(world.platform, world.tick(name).run))
    world.replay(name)
    assert world.outcome(world.run(name, "live")) == world.outcome(world.run(name, "replay"))


@pytest.mark.soak("replays")
def test_it_ends_with_the_turn_and_the_next_tick_goes_on(world_of):
    world = world_of(amount(every=40))
    world.deliver(range(5))
    world.tick("by_amount")
    turns = iter([True, True, False])
    taken = take(world, "by_amount", lambda: next(turns))
    assert [key[-1] for key in taken] == list("000111")
    assert world.tick("by_amount").train is not None


def test_a_pending_trigger_of_the_sensor_is_taken_and_a_later_attempt_is_not(world_of):
    world = world_of(amount(every=40))
    world.deliver(range(2))
    first = world.tick("by_amount").train
    assert first is not None
    assert set(take(world, "by_amount", lambda: not world.triggers(first.run_id, "trained"))) == {first.partition_key}
    second = world.tick("by_amount").train
    assert second is not None
    tick(world.platform, "by_amount", lambda _: Attempt.ENDED)
    assert take(world, "by_amount") == []


def test_what_another_run_holds_is_left_to_it(world_of):
    world = world_of(amount(every=40))
    world.deliver(range(2))
    pending = world.tick("by_amount").train
    assert pending is not None

    claim_context(world.platform, pending, "another run")
    assert take(world, "by_amount") == []
    assert world.triggers(pending.run_id, "training")[0].dagster_run_id == "another run"


def test_a_changed_spec_is_left_to_the_sensor(world_of):
    world = world_of(amount(every=40))
    world.deliver(range(3))
    world.tick("by_amount")
    before = world.run("by_amount", "live")
    write_pipeline(world.folder, amount(every=60))
    world.reload()
    assert take(world, "by_amount") == []
    assert world.run("by_amount", "live") == before


def test_a_run_that_is_stopped_finishes_its_trigger_and_takes_no_other(world_of):
    world = world_of(amount(every=40))
    world.deliver(range(5))
    world.tick("by_amount")
    stages = []
    for result in train_backlog(world.platform, "by_amount", "dagster-run", lambda: True):
        stages.append((result.context.trigger.ordinal, result.stage))
        if stages[-1] == (1, "training_set"):
            assert stop_run(world.platform, world.run("by_amount", "live")).run.state == "stopping"
    assert [ordinal for ordinal, _ in stages] == [0, 0, 0, 1, 1, 1]
    assert world.run("by_amount", "live").state == "stopped"


def test_a_failing_trigger_ends_the_turn_with_its_attempt_given_up(world_of, monkeypatch):
    world = world_of(amount(every=40))
    world.deliver(range(3))
    world.tick("by_amount")

    def fails(*_: object) -> None:
        raise DataError("a file", "made up")

    def goes_on() -> bool:
        if world.triggers(1, "trained"):
            monkeypatch.setattr(trigger_stages, "select_training_set", fails)
        return True

    with pytest.raises(DataError, match="made up"):
        take(world, "by_amount", goes_on)
    first, second = world.triggers(world.run("by_amount", "live").id)
    assert (first.state, second.state) == ("trained", "failed")


@pytest.mark.parametrize("state", ["trained", "skipped"])
def test_after_a_commit_whose_answer_was_lost_nothing_is_trained_again(world_of, monkeypatch, state):
    world = world_of(amount(every=40))
    world.deliver([0])
    if state == "skipped":
        delete(world, range(ROWS))
    world.tick("by_amount")
    made, trained, calls = trigger_stages.model_stage, train_model, Counter[str]()

    def answer_lost_once(*arguments: Any) -> StageResult | None:
        calls["stages"] += 1
        result = made(*arguments)
        if calls["stages"] == 1:
            raise DatabaseDown("127.0.0.1:5432/modyn")
        return result

    def counted(*arguments: Any) -> TriggerContext | None:
        calls["trainings"] += 1
        return trained(*arguments)

    monkeypatch.setattr(backlog, "model_stage", answer_lost_once)
    monkeypatch.setattr(trigger_stages, "train_model", counted)
    results = list(train_backlog(world.platform, "by_amount", "dagster-run", lambda: not calls))
    assert [result.stage for result in results] == ["training_set", "model", "evaluation"][: 1 if state == "skipped" else 3]
    assert [(row.state, row.attempt) for row in world.triggers(world.run("by_amount", "live").id)] == [(state, 1)]
    assert calls == {"stages": 1, "trainings": 1}


def test_a_tick_of_the_sensor_at_the_same_moment_does_not_end_the_turn(world_of, monkeypatch):
    world = world_of(amount(every=40))
    world.deliver(range(3))
    first = world.tick("by_amount").train
    assert first is not None
    world.train("by_amount", first)
    steps, raced = driver.advance_while_paused, list[TriggerRow | None]()

    def after_the_sensor(*arguments: Any, **options: Any) -> Any:
        if not raced:
            raced.append(None)
            raced.append(world.tick("by_amount").train)
        return steps(*arguments, **options)

    monkeypatch.setattr(ticks, "advance_while_paused", after_the_sensor)
    assert [key[-1] for key in take(world, "by_amount")] == list("111222")
    assert raced[1] is not None
