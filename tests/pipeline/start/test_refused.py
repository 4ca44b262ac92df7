"""Replays that no live run begins with, and what is said."""

from collections.abc import Callable

import pytest

from modyn_dagster.catalog.results.models import mark_models
from modyn_dagster.catalog.results.training_sets import mark_training_sets_removed
from modyn_dagster.catalog.runs import move_run
from modyn_dagster.catalog.triggers import list_triggers
from modyn_dagster.errors import RunError, UnknownName
from modyn_dagster.keys import key_of
from modyn_dagster.pipeline.replay.run import run_lock
from modyn_dagster.pipeline.replay.start_live import start_live
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from tests.pipeline.deleting import delete, execute
from tests.pipeline.start.comparing import start
from tests.pipeline.world import World
from tests.projects.tiny import ROWS, amount, write_pipeline

Worlds = Callable[..., World]


def replayed(world: World, days: int = 2) -> World:
    world.deliver(range(days))
    world.replay("by_amount")
    return world


def refused(world: World, match: str, run_id: int | None = None) -> None:
    """The newest replay is refused, and no run begins."""
    replay = world.run("by_amount", "replay").id if run_id is None else run_id
    with pytest.raises(RunError, match=match):
        start_live(world.platform, "by_amount", replay)


def test_a_run_that_is_no_replay_or_of_another_pipeline_is_refused(world_of: Worlds) -> None:
    world = replayed(world_of(amount(every=40), amount("other", every=40)))
    world.replay("other")
    other = world.run("other", "replay")
    refused(
        world,
        f"^replay run {other.id} of other is a run of another pipeline; `modyn-dagster pipeline status by_amount`",
        other.id,
    )
    live = start(world, "by_amount")
    refused(world, f"^live run {live.id} of by_amount is no replay; `modyn-dagster pipeline status by_amount` names", live.id)
    with pytest.raises(UnknownName, match="99"):
        start_live(world.platform, "by_amount", 99)


def test_another_spec_is_refused_with_the_fields_that_differ(world_of: Worlds) -> None:
    world = replayed(world_of(amount(every=40)))
    changed = amount(every=50, description="not part of the behaviour")
    changed["training"] |= {"epochs": 7}
    write_pipeline(world.folder, changed)
    world.reload()
    refused(world, r"another spec than the file of by_amount \(trigger.every, training.epochs\); replay it as it is now")


@pytest.mark.soak("replays")
def test_a_changed_description_is_no_other_spec(world_of: Worlds) -> None:
    world = replayed(world_of(amount(every=40)))
    write_pipeline(world.folder, amount(every=40, description="in other words"))
    world.reload()
    assert start(world, "by_amount").mode == "live"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("active", "is not finished; launch it again and let it end: `modyn-dagster pipeline replay by_amount`"),
        ("waiting", "stopped at a failed trigger; `modyn-dagster pipeline resume by_amount --run 1` and launch the replay again"),
        ("ended", "was begun anew as a later replay, after a deletion"),
    ],
)
def test_a_replay_that_has_not_come_to_its_end_is_refused(world_of: Worlds, state: str, said: str) -> None:
    world = replayed(world_of(amount(every=40)))
    with world.platform.transaction() as conn:
        move_run(conn, world.run("by_amount", "replay"), state=state)
    refused(world, said)


@pytest.mark.soak("replays")
def test_a_replay_that_a_process_works_on_is_refused(world_of: Worlds) -> None:
    world = replayed(world_of(amount(every=40)))
    with run_lock(world.platform.engine, world.run("by_amount", "replay")):
        refused(world, "a process works on replay run 1 of by_amount")


def test_a_second_live_run_is_refused_and_a_second_call_is_none(world_of: Worlds) -> None:
    world = replayed(world_of(amount(every=40)))
    first = start_live(world.platform, "by_amount", 1)
    again = start_live(world.platform, "by_amount", 1)
    assert (first.anew, again.anew, again.run.id) == (True, False, first.run.id)
    world.replay("by_amount", name="another")
    said = f"live run {first.run.id} of by_amount is active, and a pipeline has one live run at a time; end it first: "
    refused(world, said + "`modyn-dagster pipeline finish by_amount`")
    list(finish_live_run(world.platform, first.run))
    assert start(world, "by_amount").id > first.run.id


@pytest.mark.soak("replays")
def test_what_the_next_triggers_start_from_has_to_be_there(world_of: Worlds) -> None:
    freshness = {"window": "all", "strategy": {"kind": "freshness", "unused": 0.5, "size": 30}}
    world = replayed(world_of(amount(every=40, selection=freshness)))
    with world.platform.transaction() as conn:
        first, *_, newest = list_triggers(conn, 1)
        mark_training_sets_removed(conn, [first.id])
    refused(world, f"retention has removed the training set of trigger {first.partition_key}.* replay it once more: ")
    with world.platform.transaction() as conn:
        mark_models(conn, [newest.id], removed=True)
    refused(world, "retention has removed its newest model, .* --restart`")


def test_a_missing_file_is_named_with_the_command_that_makes_it_again(world_of: Worlds) -> None:
    world = replayed(world_of(amount(every=40)))
    (world.platform.home / "training_sets" / "000001" / "000001.arrow").unlink()
    refused(world, "training_sets/000001/000001.arrow is missing; `modyn-dagster repair` makes it again")
    with world.platform.transaction() as conn:
        assert list_triggers(conn, 2) == []


@pytest.mark.soak("production")
def test_a_replay_with_a_withdrawn_model_is_refused(world_of: Worlds) -> None:
    world = replayed(world_of(amount(every=ROWS)))
    execute(world, [key_of(0, row) for row in range(ROWS)])
    refused(world, "a deletion has withdrawn the model of trigger 000001-000000; replay it once more: .* --restart`")


def test_holes_of_the_live_run_before_have_to_be_holes_of_the_replay(world_of: Worlds) -> None:
    world = replayed(world_of(amount(every=30)))
    delete(world, [key_of(0, 3), key_of(1, 5)])
    world.replay("by_amount", name="without", as_if_deleted=True)
    without = start(world, "by_amount")
    assert without.hole_set_id == world.run_named("by_amount", "without").hole_set_id is not None
    list(finish_live_run(world.platform, without))
    refused(world, "counts 2 deleted samples that are holes of live run 3 of by_amount; .* --as-if-deleted`", 1)
