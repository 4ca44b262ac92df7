"""Promotions for operators: hooks are told of them, and retention keeps what a gate needs."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.promotions import gate_of, list_promotions
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.errors import RunError
from modyn_dagster.evaluation.promotion.state import GateState
from modyn_dagster.pipeline.event import Event
from modyn_dagster.pipeline.operate.model_retention import no_aliases, retain_models
from modyn_dagster.pipeline.operate.models_in_use import models_in_use
from modyn_dagster.pipeline.operate.notification.delivery import deliver_events
from modyn_dagster.pipeline.promotion.actions import act
from tests.pipeline import hooks
from tests.pipeline.world import World
from tests.projects.tiny import amount

QUICK = {"metric": "accuracy", "min_samples": 10, "confidence": 0.6}
NOTIFY = {"hook": "tests.pipeline.hooks:hook"}
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def heard() -> Iterator[list[Event]]:
    yield hooks.HEARD
    hooks.HEARD.clear()


def lived(world: World, days: range) -> RunRow:
    for day in days:
        world.deliver([day])
        world.live_until_idle("p")
    return world.run("p", "live")


def hashes(world: World, run: RunRow) -> dict[int, str]:
    with world.platform.transaction() as conn:
        return {model.ordinal: model.hash for model in list_models(conn, run.id)}


def state(world: World, run: RunRow) -> GateState:
    with world.platform.transaction() as conn:
        return GateState.of_json(gate_of(conn, run.id).state)


def test_a_hook_hears_once_of_candidates_that_wait_champions_rejections_and_rollbacks(world_of: Any, heard: list[Event]) -> None:
    world = world_of(amount("p", every=60, notify=NOTIFY) | {"promotion": QUICK | {"approve": "manual"}})
    run = lived(world, range(7))
    candidates = [each.trigger for each in state(world, run).candidates]
    waiting = [each.trigger for each in state(world, run).candidates if each.state == "passed"]
    act(world.platform, run, "promote", candidates[0], "ann", "a good model")
    act(world.platform, run, "reject", candidates[1], "bob", "a bad day")
    act(world.platform, run, "rollback", None, "ann", "a complaint")
    list(deliver_events(world.platform, "p", {"hook": LONG_AGO}))
    told = [event for event in heard if event.name.startswith("promotion ")]
    with world.platform.transaction() as conn:
        changes = {f"promotion {each.number}": each for each in list_promotions(conn, run.id)}
    assert [(event.kind, changes[event.name].ordinal, event.manual) for event in told] == [
        ("promoted", 0, False),
        *(("waits_for_approval", trigger, False) for trigger in waiting),
        ("promoted", candidates[0], True),
        ("rejected", candidates[1], True),
        ("rolled_back", 0, True),
    ]
    assert [(event.trigger, event.at) for event in told] == [
        (changes[event.name].partition_key, changes[event.name].created_at) for event in told
    ]
    assert waiting
    assert "may become the champion: " in told[1].text
    assert told[-3].text.endswith("is the champion, by ann: a good model")
    assert told[-1].text.endswith("is the champion again, by ann: rolled back by hand: a complaint")
    heard.clear()
    assert list(deliver_events(world.platform, "p", {"hook": LONG_AGO})) == []


@pytest.mark.soak("production")
def test_retention_keeps_champion_the_ones_before_candidates_and_what_the_gate_has_not_seen(world_of: Any) -> None:
    rules = {"promotion": QUICK | {"approve": "manual"}, "model_store": {"strategy": "snapshot"}}
    world = world_of(amount("p", every=40, retention={"models": {"newest": 1}}) | rules)
    run = lived(world, range(6))
    models = hashes(world, run)
    act(world.platform, run, "promote", 1, "ann", "once")
    act(world.platform, run, "promote", 2, "ann", "twice")
    open_ = [each.trigger for each in state(world, run).candidates]
    gone = open_[0]
    act(world.platform, run, "reject", gone, "ann", "no use")
    now = state(world, run)
    assert (now.champion, now.former) == (2, (0, 1))
    uses = models_in_use(world.platform)
    assert uses[models[2]] == [f"the champion of {run.title}, by its gate"]
    assert uses[models[1]] == [f"a champion before, to which {run.title} can roll back"]
    kept = {models[each] for each in (0, 1, 2, max(models), *(each.trigger for each in now.candidates))}
    assert models[gone] not in kept
    assert retain_models(world.platform, no_aliases).n_models == len(models) - len(kept)
    assert set(world.platform.model_store.list()) == kept
    assert act(world.platform, run, "rollback", 0, "ann", "back").events[0].ordinal == 0
    with pytest.raises(RunError, match="cannot be loaded, so the champion stays"):
        act(world.platform, run, "promote", gone, "ann", "after all")


@pytest.mark.soak("production")
def test_models_that_the_gate_has_not_looked_at_stay_for_its_tests(world_of: Any) -> None:
    rules = {"promotion": QUICK, "live": "newest", "model_store": {"strategy": "snapshot"}}
    world = world_of(amount("p", every=40, retention={"models": {"newest": 1}}) | rules)
    lived(world, range(1))
    world.deliver(range(1, 5))
    while (now := world.tick("p")).train is not None:
        world.train("p", now.train)
    run = world.run("p", "live")
    unseen = [each for each in hashes(world, run) if each > state(world, run).seen]
    assert len(unseen) > 2
    assert retain_models(world.platform, no_aliases).n_models == 0
    world.live_until_idle("p")
    assert state(world, run).seen == max(hashes(world, run))
