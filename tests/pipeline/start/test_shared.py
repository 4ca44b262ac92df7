"""A replay and the live run that took it over share models and the bytes of files, and neither needs the other."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from modyn_dagster.catalog.results.models import list_models, model_uses
from modyn_dagster.catalog.results.promotions import live_model
from modyn_dagster.catalog.timings import bytes_by_trigger, seconds_by_trigger
from modyn_dagster.catalog.triggers import list_triggers
from modyn_dagster.errors import RunError
from modyn_dagster.keys import key_of
from modyn_dagster.pipeline.decide.tick import Attempt, tick
from modyn_dagster.pipeline.operate.live_intervals import live_times
from modyn_dagster.pipeline.operate.model_retention import no_aliases, retain_models
from modyn_dagster.pipeline.operate.notification.delivery import undelivered_events
from modyn_dagster.pipeline.operate.retention import apply_retention
from modyn_dagster.pipeline.replay.start_live import start_live
from modyn_dagster.pipeline.stages.evaluation.pending_evaluations import scan_pending
from tests.pipeline.deleting import chained, execute
from tests.pipeline.start.comparing import facts, files_of, start
from tests.pipeline.world import World
from tests.projects.tiny import amount

Worlds = Callable[..., World]

DAYS = 4


def taken_over(world: World, name: str = "by_amount") -> World:
    """A world whose live run has just taken over a replay."""
    world.deliver(range(DAYS))
    world.replay(name)
    start(world, name)
    return world


def test_nothing_is_trained_predicted_or_scored_again(world_of: Worlds) -> None:
    world = taken_over(world_of(amount(every=35)))
    replay, live = world.run("by_amount", "replay"), world.run("by_amount", "live")
    found, expected = facts(world, live), facts(world, replay)
    for name in ("cells", "evaluations"):
        # The replay has finished, and scored its last interval too.
        assert set(found.pop(name)) < set(expected.pop(name))
    assert found == expected
    assert scan_pending(world.platform, live).due == []
    now = tick(world.platform, "by_amount", lambda *_: Attempt.NONE)
    assert (now.run.id, now.train, now.measure, now.evaluate) == (live.id, None, None, True)
    with world.platform.transaction() as conn:
        ordinals = {row.id: row.ordinal for run in (replay, live) for row in list_triggers(conn, run.id)}
        for ledger in (seconds_by_trigger, bytes_by_trigger):
            costs = [
                {(ordinals.get(trigger or 0), stage): n for (trigger, stage), n in ledger(conn, run.id).items()}
                for run in (replay, live)
            ]
            assert costs[0] == costs[1]
            assert costs[0]


@pytest.mark.parametrize("mode", ["replay", "live"])
def test_what_retention_removes_of_one_run_the_other_keeps(world_of: Worlds, mode: str) -> None:
    world = taken_over(world_of(amount(every=35, retention={"training_sets": 1, "predictions": 1})))
    gone, kept = (world.run("by_amount", each) for each in (mode, "live" if mode == "replay" else "replay"))
    before = files_of(world, kept)
    for path in set(files_of(world, gone)):
        (world.platform.home / path).unlink()
    assert set(before).isdisjoint(files_of(world, gone))
    assert all((world.platform.home / path).is_file() for path in before)
    assert apply_retention(world.platform).training_sets > 0
    assert all((world.platform.home / path).is_file() for path in files_of(world, kept))


@pytest.mark.soak("production")
def test_a_model_stays_while_either_run_keeps_it(world_of: Worlds) -> None:
    world = taken_over(world_of(amount(every=35, retention={"models": {"newest": 2}})))
    first = world.run("by_amount", "replay")
    world.deliver(range(DAYS, DAYS + 3))
    world.live_until_idle("by_amount")
    retain_models(world.platform, no_aliases)
    with world.platform.transaction() as conn:
        kept = [model.hash for model in list_models(conn, first.id)][-2:]
        present = {use.hash for use in model_uses(conn) if use.removed_at is None}
    stored = set(world.platform.models_of(world.platform.pipeline("by_amount")).list())
    assert {*kept} <= present <= stored


@pytest.mark.soak("replays")
def test_the_newest_model_is_live_from_the_moment_of_taking_over(world_of: Worlds) -> None:
    world = world_of(amount(every=35))
    world.deliver(range(DAYS))
    world.replay("by_amount")
    before = datetime.now(UTC)
    run = start(world, "by_amount")
    with world.platform.transaction() as conn:
        *_, newest = list_models(conn, run.id)
        assert live_model(conn, "by_amount", before) is None
        found = live_model(conn, "by_amount", datetime.now(UTC))
        [(trigger, span)] = live_times(model_uses(conn)).items()
    assert found == newest
    assert (span.since, span.until, trigger) == (run.created_at, None, f"{run.id:06d}-{newest.ordinal:06d}")


@pytest.mark.soak("production")
def test_the_hook_is_not_told_of_what_the_replay_did(world_of: Worlds) -> None:
    since = datetime.now(UTC)
    limits = {"score_below": {"metric": "accuracy", "floor": 1.0}}
    world = taken_over(world_of(amount(every=35, notify={"hook": "tests.pipeline.hooks:hook"} | limits)))
    assert undelivered_events(world.platform, "by_amount", {"hook": since}) == []
    world.deliver([DAYS])
    world.live_until_idle("by_amount")
    kinds = {event.kind for event in undelivered_events(world.platform, "by_amount", {"hook": since})}
    assert "trigger" in kinds


@pytest.mark.soak("production")
def test_a_deletion_withdraws_models_of_the_replay_and_makes_those_of_the_live_run_anew(world_of: Worlds) -> None:
    world = taken_over(world_of(chained()))
    runs = [world.run("by_amount", mode) for mode in ("replay", "live")]
    before = facts(world, runs[1])["models"]
    document = execute(world, [key_of(0, 3)])
    assert {action.run_id for action in document.actions} == {run.id for run in runs}
    replayed, live = (facts(world, world.reread(run.id)) for run in runs)
    assert replayed["models"] == []
    assert len(live["models"]) == len(before)
    assert not {model[1] for model in live["models"]} & {model[1] for model in before}
    assert live["state"]["previous_model"] == live["models"][-1][1]
    assert all((world.platform.home / path).is_file() for path in files_of(world, runs[1]))
    with pytest.raises(RunError, match="one live run at a time"):
        world.replay("by_amount", name="later")
        start_live(world.platform, "by_amount", world.run_named("by_amount", "later").id)


@pytest.mark.soak("production")
def test_a_deletion_as_if_deleted_begins_both_anew_from_nothing(world_of: Worlds) -> None:
    world = taken_over(world_of(amount(every=35)))
    old = world.run("by_amount", "live")
    execute(world, [key_of(0, 3)], mode="as_if_deleted")
    world.live_until_idle("by_amount")
    new = world.run("by_amount", "live")
    assert new.id > old.id
    assert new.options == {}
    assert world.decisions(new) == world.decisions(world.run("by_amount", "replay"))
