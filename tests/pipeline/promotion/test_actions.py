"""Actions of people on models that the gate does not know yet, or has done with."""

from collections.abc import Mapping
from typing import Any

import pytest

from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.promotions import gate_of, list_promotions
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.errors import RunError
from modyn_dagster.evaluation.promotion.history import is_rollback
from modyn_dagster.evaluation.promotion.state import Action, GateState
from modyn_dagster.pipeline.promotion.actions import act
from modyn_dagster.pipeline.promotion.gate_walk import advance_live
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from tests.pipeline.promotion.test_live_is_replay import alike, promoting
from tests.pipeline.world import World
from tests.projects.tiny import amount

#: State of a model after an action.
ENDS: Mapping[Action, str] = {"promote": "champion", "reject": "rejected"}


def before_a_look(world: World) -> tuple[RunRow, int]:
    """A live run, and its newest model, at which its gate has not looked."""
    world.deliver([0])
    world.live_until_idle("p")
    world.deliver([1, 2])
    while (now := world.tick("p")).train is not None:
        world.train("p", now.train)
    with world.platform.transaction() as conn:
        state = GateState.of_json(gate_of(conn, now.run.id).state)
        newest = list_models(conn, now.run.id)[-1].ordinal
    assert state.champion is not None
    assert newest > state.seen
    return now.run, newest


def states(world: World, run: RunRow, trigger: int) -> list[tuple[str, str]]:
    with world.platform.transaction() as conn:
        return [(each.state, each.actor) for each in list_promotions(conn, run.id) if each.ordinal == trigger]


def refused_and_then_done(world: World, action: Action) -> tuple[RunRow, int]:
    """A live run in which a person asks for an action before the gate's look at a model, and again after it."""
    run, newest = before_a_look(world)
    with pytest.raises(RunError, match=rf"the gate of {run.title} has not looked at the model of trigger {newest} yet; it does"):
        act(world.platform, run, action, newest, "ann", "urgent")
    assert states(world, run, newest) == []
    advance_live(world.platform, run)
    assert act(world.platform, run, action, newest, "ann", "urgent").events
    assert states(world, run, newest)[-1] == (ENDS[action], "ann")
    return run, newest


def test_a_person_acts_on_a_model_once_the_gate_has_looked_at_it(world_of: Any) -> None:
    refused_and_then_done(world_of(promoting(amount("p", every=40)) | {"live": "newest"}), "promote")


@pytest.mark.soak("production")
@pytest.mark.parametrize("action", ["promote", "reject"])
def test_a_replay_repeats_an_action_on_a_model_that_the_gate_knew(world_of: Any, action: Action) -> None:
    world = world_of(promoting(amount("p", every=40)) | {"live": "newest"})
    run, newest = refused_and_then_done(world, action)
    for day in range(3, 5):
        world.deliver([day])
        world.live_until_idle("p")
    # It is no candidate again.
    assert [each for each, _ in states(world, run, newest)].count("candidate") == 1
    list(finish_live_run(world.platform, run))
    world.replay("p", manual_of=run.id)
    alike(world, run, world.run("p", "replay"))


def test_only_a_candidate_can_be_rejected_and_what_is_done_already_stays(world_of: Any) -> None:
    world = world_of(promoting(amount("p", every=40), approve="manual", confidence=0.999) | {"live": "newest"})
    world.deliver(range(4))
    while (now := world.tick("p")).train is not None:
        world.train("p", now.train)
    run = now.run
    advance_live(world.platform, run)
    with world.platform.transaction() as conn:
        state = GateState.of_json(gate_of(conn, run.id).state)
    first, second, third = (each.trigger for each in state.candidates[:3])
    act(world.platform, run, "reject", first, "ann", "no use")
    assert act(world.platform, run, "reject", first, "ann", "no use").events == []
    act(world.platform, run, "promote", third, "ann", "the best")
    for trigger, was in ((second, "superseded"), (0, "retired")):
        with pytest.raises(RunError, match=f"the model of trigger {trigger} is {was}; only a candidate can be rejected"):
            act(world.platform, run, "reject", trigger, "ann", "no use")
    # An action is what it is recorded as, whatever the reason says.
    act(world.platform, run, "rollback", 0, "ann", "a complaint")
    act(world.platform, run, "promote", third, "ann", "rolled back by hand: not so")
    with world.platform.transaction() as conn:
        crowned = [event for event in list_promotions(conn, run.id) if event.state == "champion"][1:]
    assert [(event.action, is_rollback(event)) for event in crowned] == [
        ("promote", False),
        ("rollback", True),
        ("promote", False),
    ]
    with pytest.raises(RunError, match=f"the model of trigger {third} is the champion; roll back"):
        act(world.platform, run, "reject", third, "ann", "no use")
    assert act(world.platform, run, "promote", third, "ann", "the best").events == []
