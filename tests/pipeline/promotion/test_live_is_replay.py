"""The law of promotions: a replay and a live run take the same looks, promote the same models and decide alike."""

from collections.abc import Callable
from typing import Any

import pytest

from modyn_dagster.catalog.results.promotions import gate_of, list_promotions
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.errors import RunError
from modyn_dagster.pipeline.promotion.actions import act
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from tests.pipeline.start.comparing import start
from tests.pipeline.world import World
from tests.projects.tiny import Content, amount, timed, triggered

DAYS = 8
QUICK = {"metric": "accuracy", "min_samples": 10, "confidence": 0.6}
WORSE = {"kind": "performance", "every": 20, "decision": {"rule": "threshold", "value": 0.75}}


def promoting(content: Content, **promotion: Any) -> Content:
    """A pipeline whose gate decides soon."""
    return content | {"promotion": QUICK | promotion}


def judged_by_champion() -> Content:
    """Pipeline whose triggers judge the champion, and whose trainings go on from it."""
    content = triggered("judged", WORSE, start="beginning")
    content["training"] |= {"use_previous_model": "champion"}
    return promoting(content)


def rolled_back() -> Content:
    """Every champion is soon rolled back: no model has such a score."""
    back = {"below": 0.999, "every": "1d", "intervals": 2, "min_samples": 5, "cool_down": "1d"}
    return promoting(amount("rolled", every=50), rollback=back, shadow={"for": "3d", "max": 2})


def guarded() -> Content:
    metrics = [{"metric": "log_loss", "max_drop": 0.05}, {"metric": "roc_auc", "max_drop": 0.2}]
    return promoting(amount("guarded", every=50), guardrails={"metrics": metrics, "max_bytes": "1MB"}, window="3d")


def watched() -> Content:
    """A champion that is worse than the one before on a slice is rolled back, were it promoted by a person."""
    guardrails = {"metrics": [{"metric": "log_loss", "max_drop": 0.0, "slice": "label"}]}
    back = {"guardrails": True, "every": "1d", "intervals": 1, "min_samples": 5, "cool_down": "1d"}
    content = promoting(amount("watched", every=50), rollback=back, guardrails=guardrails, confidence=0.999)
    return content | {"evaluation": content["evaluation"] | {"slices": ["label"]}}


def by_auc() -> Content:
    return promoting(amount("by_auc", every=60), metric="roc_auc", test="block_bootstrap", min_samples=20)


def by_count() -> Content:
    return promoting(timed("by_count"), test="mcnemar", shadow={"samples": 100, "max": 1})


CASES: dict[str, Callable[[], Content]] = {
    "amount": lambda: promoting(amount("p", every=60)),
    "champion": judged_by_champion,
    "rollback": rolled_back,
    "guardrails": guarded,
    "bootstrap": by_auc,
    "mcnemar": by_count,
    "newest": lambda: promoting(amount("p", every=60)) | {"live": "newest"},
}


def history(world: World, run: RunRow) -> list[tuple[Any, ...]]:
    """Changes of the models' states, whatever the run's number."""
    with world.platform.transaction() as conn:
        return [
            (e.number, e.ordinal, e.model_hash, e.before, e.state, e.actor, e.reason, e.batch, e.time, e.verdict, e.manual)
            for e in list_promotions(conn, run.id)
        ]


def gate(world: World, run: RunRow) -> tuple[int, Any]:
    with world.platform.transaction() as conn:
        row = gate_of(conn, run.id)
    return row.batch, row.state


def lived(world: World, pipeline: str, days: range = range(DAYS)) -> RunRow:
    """A live run to which batches come one by one."""
    for day in days:
        world.deliver([day])
        world.live_until_idle(pipeline)
    return world.run(pipeline, "live")


def alike(world: World, live: RunRow, replayed: RunRow) -> None:
    live, replayed = world.reread(live.id), world.reread(replayed.id)
    assert history(world, live) == history(world, replayed)
    assert gate(world, live) == gate(world, replayed)
    assert live.champion_model == replayed.champion_model
    assert world.decisions(live) == world.decisions(replayed)
    assert world.outcome(live) == world.outcome(replayed)


SLOW = [pytest.param(case, marks=pytest.mark.soak("production")) for case in CASES if case != "amount"]


@pytest.mark.parametrize("case", ["amount", *SLOW])
def test_a_replay_promotes_what_the_live_run_promoted(world_of, case):
    content = CASES[case]()
    world = world_of(content)
    live = lived(world, content["name"])
    list(finish_live_run(world.platform, live))
    world.replay(content["name"])
    alike(world, live, world.run(content["name"], "replay"))
    assert any(event[4] != "champion" for event in history(world, live))


@pytest.mark.soak("production")
def test_people_approve_and_roll_back_and_a_replay_repeats_it(world_of):
    world = world_of(promoting(amount("asked", every=60), approve="manual"))
    live = lived(world, "asked", range(7))
    passed = [event[1] for event in history(world, live) if event[4] == "passed"]
    assert passed
    done = act(world.platform, live, "promote", passed[0], "ann", "the numbers are right")
    assert [event.state for event in done.events][:2] == ["champion", "retired"]
    assert act(world.platform, live, "promote", passed[0], "ann", "twice").events == []
    lived(world, "asked", range(7, 8))
    back = act(world.platform, live, "rollback", None, "bob", "a customer complained")
    assert (back.events[0].ordinal, back.events[0].reason) == (0, "rolled back by hand: a customer complained")
    lived(world, "asked", range(8, 9))
    list(finish_live_run(world.platform, live))
    with pytest.raises(RunError, match="approve is manual, and a replay has nobody to ask"):
        world.replay("asked")
    world.replay("asked", manual_of=live.id)
    alike(world, live, world.run("asked", "replay"))


@pytest.mark.soak("production")
def test_a_model_that_a_person_promoted_and_a_guardrail_rolled_back_is_so_in_a_replay_too(world_of):
    world = world_of(watched())
    live = lived(world, "watched", range(4))
    act(world.platform, live, "promote", 1, "ann", "by mistake")
    lived(world, "watched", range(4, 8))
    [back] = [event for event in history(world, live) if event[5] == "rollback" and event[4] == "champion"]
    assert back[1] == 0
    assert "of the champion before on label=" in back[6]
    list(finish_live_run(world.platform, live))
    world.replay("watched", manual_of=live.id)
    alike(world, live, world.run("watched", "replay"))


@pytest.mark.soak("production")
def test_a_live_run_that_takes_over_a_replay_goes_on_with_its_gate(world_of):
    """As if it had been there from the beginning: the same tests, numbers and champion."""
    taken, always = promoting(amount("taken", every=60)), promoting(amount("always", every=60))
    world = world_of(taken, always)
    world.deliver(range(5))
    world.replay("taken")
    before = start(world, "taken")
    assert before.champion_model is not None
    for day in range(5, DAYS):
        world.deliver([day])
        for pipeline in ("taken", "always"):
            world.live_until_idle(pipeline)
    one, other = world.run("taken", "live"), world.run("always", "live")
    assert one.id == before.id
    assert history(world, one) == history(world, other)
    assert gate(world, one) == gate(world, other)
    assert world.reread(one.id).champion_model == world.reread(other.id).champion_model
