"""Deletions that make models of a gate again or withdraw them: the champion of the run, its tests, its events, and the replay."""

from collections.abc import Callable, Sequence

import pytest

from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.promotions import PromotionRow, gate_of, list_promotions
from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.evaluation.promotion.state import GateState
from modyn_dagster.evaluation.promotion.verdicts import champion_verdicts
from modyn_dagster.keys import KeyArray
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.promotion.actions import act
from modyn_dagster.pipeline.promotion.gate_walk import advance_live
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set
from tests.pipeline.deleting import execute
from tests.pipeline.promotion.test_live_is_replay import promoting
from tests.pipeline.world import World
from tests.projects.tiny import Content, amount

WorldOf = Callable[..., World]


def asking() -> Content:
    """A pipeline whose tests decide nothing, and that has a model every day."""
    return promoting(amount("p", every=40), confidence=0.999, min_samples=10_000, shadow={"max": 5}) | {"live": "newest"}


def lived(world: World, days: Sequence[int]) -> RunRow:
    world.deliver(days)
    while (now := world.tick("p")).train is not None:
        world.train("p", now.train)
    advance_live(world.platform, now.run)
    return world.reread(now.run.id)


def replayed(world: World, days: Sequence[int]) -> RunRow:
    world.deliver(days)
    world.replay("p")
    return world.run("p", "replay")


def state_of(world: World, run: RunRow) -> tuple[int, GateState]:
    with world.platform.transaction() as conn:
        row = gate_of(conn, run.id)
    return row.batch, GateState.of_json(row.state)


def events_of(world: World, run: RunRow) -> list[PromotionRow]:
    with world.platform.transaction() as conn:
        return list_promotions(conn, run.id)


def hashes(world: World, run: RunRow) -> dict[int, str]:
    with world.platform.transaction() as conn:
        return {model.ordinal: model.hash for model in list_models(conn, run.id)}


def named(world: World, run: RunRow) -> int | None:
    """Champion by the verdicts that are shown."""
    with world.platform.transaction() as conn:
        models, cells = [each.ordinal for each in list_models(conn, run.id)], list_evaluations(conn, run.id)
        verdicts = champion_verdicts(world.platform.spec_of(run), models, cells, list_promotions(conn, run.id))
    return verdicts[-1].champion


def samples_of(world: World, run: RunRow, ordinal: int) -> KeyArray:
    """Keys of a trigger's training set."""
    [trigger] = [each for each in world.triggers(run.id, "trained") if each.ordinal == ordinal]
    with world.platform.transaction() as conn:
        row = find_training_set(conn, trigger.id)
    assert row is not None
    return open_training_set(context_of(world.platform, run.pipeline, trigger.partition_key), row).keys()


def consistent(world: World, run: RunRow) -> None:
    """The run's row, the verdicts and the gate name one champion, whose model is there."""
    run, (_, state), models = world.reread(run.id), state_of(world, run), hashes(world, run)
    assert named(world, run) == state.champion
    assert run.champion_model == (None if state.champion is None else models[state.champion])
    last = {event.ordinal: event for event in events_of(world, run)}
    assert {ordinal for ordinal, event in last.items() if event.state == "champion"} == {state.champion} - {None}
    for each in state.candidates:
        assert (last[each.trigger].state, last[each.trigger].model_hash) == (each.state, models[each.trigger])
    if state.champion is not None:
        assert last[state.champion].model_hash == models[state.champion]


BEGUN = [lived, pytest.param(replayed, marks=pytest.mark.soak("deletions"))]


@pytest.mark.parametrize("begun", BEGUN)
def test_the_champion_that_follows_a_withdrawn_one_is_named_at_once(world_of: WorldOf, begun: Callable[..., RunRow]) -> None:
    world = world_of(asking())
    run = begun(world, range(3))
    batch, state = state_of(world, run)
    candidates = [each.trigger for each in state.candidates]
    assert len(candidates) == 2
    act(world.platform, run, "promote", candidates[0], "ann", "it is needed")
    n_events = len(events_of(world, run))
    # The champion before takes its place again, not the newest model, which is tested.
    execute(world, samples_of(world, run, candidates[0]), ways={"p": "roll_back"})
    assert state_of(world, run)[1].champion == 0
    assert [(each.ordinal, each.before, each.state, each.actor, each.batch) for each in events_of(world, run)[n_events:][:2]] == [
        (candidates[0], "champion", "retired", "deletion", batch),
        (0, "retired", "champion", "deletion", batch),
    ]
    consistent(world, run)


@pytest.mark.soak("deletions")
@pytest.mark.parametrize("begun", [lived, replayed])
def test_without_an_earlier_champion_the_newest_candidate_that_loads_follows(
    world_of: WorldOf, begun: Callable[..., RunRow]
) -> None:
    # Nothing but the gate loads the model that is lost.
    world = world_of(asking() | {"evaluation": asking()["evaluation"] | {"matrix": "lazy"}})
    run = begun(world, range(4))
    *_, second, newest = [each.trigger for each in state_of(world, run)[1].candidates]
    world.platform.model_store.delete(hashes(world, run)[newest])
    execute(world, samples_of(world, run, 0), ways={"p": "roll_back"})
    assert state_of(world, run)[1].champion == second
    [rejected] = [event for event in events_of(world, run) if event.state == "rejected"]
    assert (rejected.ordinal, rejected.actor) == (newest, "deletion")
    assert "cannot be loaded" in rejected.reason
    consistent(world, run)


@pytest.mark.soak("deletions")
def test_before_the_first_look_the_first_model_that_is_left_is_the_champion(world_of: WorldOf) -> None:
    world = world_of(asking())
    world.deliver(range(3))
    while (now := world.tick("p")).train is not None:
        world.train("p", now.train)
    run, models = now.run, hashes(world, now.run)
    assert world.reread(run.id).champion_model == models[0]
    execute(world, samples_of(world, run, 0), ways={"p": "roll_back"})
    assert named(world, run) == 1
    assert world.reread(run.id).champion_model == models[1]
    advance_live(world.platform, run)
    assert state_of(world, run)[1].champion == 1
    consistent(world, run)


@pytest.mark.soak("deletions")
def test_without_a_model_that_may_follow_there_is_no_champion_until_the_next_model(world_of: WorldOf) -> None:
    world = world_of(asking())
    run = lived(world, range(3))
    for each in state_of(world, run)[1].candidates:
        act(world.platform, run, "reject", each.trigger, "ann", "no use")
    execute(world, samples_of(world, run, 0), ways={"p": "roll_back"})
    assert (state_of(world, run)[1].champion, named(world, run)) == (None, None)
    consistent(world, run)
    newest = max(hashes(world, run))
    lived(world, [3])
    assert state_of(world, run)[1].champion == newest + 1
    consistent(world, run)


@pytest.mark.parametrize("begun", BEGUN)
def test_tests_of_and_against_a_model_that_is_made_again_begin_anew(world_of: WorldOf, begun: Callable[..., RunRow]) -> None:
    world = world_of(asking())
    run = begun(world, range(4))
    batch, before = state_of(world, run)
    models, n_events = hashes(world, run), len(events_of(world, run))
    candidate = before.candidates[0]
    assert candidate.trial is not None
    assert candidate.trial.n > 0
    execute(world, samples_of(world, run, candidate.trigger)[:3], ways={"p": "retrain"})
    _, after = state_of(world, run)
    assert hashes(world, run)[candidate.trigger] != models[candidate.trigger]
    assert after.candidates[1:] == before.candidates[1:]
    trial = after.candidates[0].trial
    assert trial is not None
    assert (trial.number, trial.n, trial.begun, dict(trial.numbers)) == (before.n_tests + 1, 0, batch, {})
    told = [(each.ordinal, each.before, each.state, each.batch) for each in events_of(world, run)[n_events:]]
    assert told == [(candidate.trigger, "shadow", "candidate", batch), (candidate.trigger, "candidate", "shadow", batch)]
    # What happened before names the model of then.
    assert [e.model_hash for e in events_of(world, run)[:n_events] if e.ordinal == candidate.trigger] == 2 * [
        models[candidate.trigger]
    ]
    consistent(world, run)
    # The champion's own: it stays, and all tests begin anew.
    execute(world, samples_of(world, run, 0)[:3], ways={"p": "retrain"})
    _, last = state_of(world, run)
    assert last.champion == 0
    assert {(each.trial.n, each.trial.begun) for each in last.candidates if each.trial is not None} == {(0, batch)}
    assert last.n_tests == after.n_tests + len(last.candidates)
    consistent(world, run)
