"""Costs of trainings as triggering policies are told them."""

from typing import Any

import pytest

from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.timings import seconds_by_stage
from modyn_dagster.errors import TriggerFailed
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from tests.pipeline.world import World
from tests.projects.tiny import Content, amount


def costly(**fields: Any) -> Content:
    """Fires when the waiting of all samples, in sample-seconds, is worth as many training seconds."""
    trigger = {"kind": "cost", "every": 20, "signal": "latency", "regret_per_training_second": 1e7}
    return amount("costly") | {"trigger": trigger | fields}


def capped(**cost: Any) -> Content:
    trigger = {"kind": "budget", "policy": {"kind": "amount", "every": 20}, "per": "1w", "seconds": 4.0, **cost}
    return amount("capped") | {"trigger": trigger}


def models(world: World, run: RunRow) -> list[ModelRow]:
    with world.platform.transaction() as conn:
        return list_models(conn, run.id)


def lived(world: World, name: str) -> RunRow:
    """A finished live run over four days."""
    for days in ([0], [1, 2], [3]):
        world.deliver(days)
        world.live_until_idle(name)
    list(finish_live_run(world.platform, world.run(name, "live")))
    return world.run(name, "live")


def test_a_policy_is_told_the_seconds_of_selecting_and_training(world_of):
    world = world_of(amount(every=40))
    run = lived(world, "by_amount")
    for model in models(world, run):
        with world.platform.transaction() as conn:
            ledger = seconds_by_stage(conn, run.id, model.trigger_id)
        assert ledger["evaluate"] > 0
        assert model.seconds == pytest.approx(sum(ledger[stage] for stage in ("select", "train", "save")))


@pytest.mark.soak("replays")
@pytest.mark.parametrize("pipeline", [costly(), capped()], ids=lambda content: content["name"])
def test_a_replay_that_takes_recorded_seconds_decides_as_the_run_they_come_from(world_of, pipeline):
    world, name = world_of(pipeline), pipeline["name"]
    live = lived(world, name)
    assert len(models(world, live)) > 1
    world.replay(name, costs_from=live.id)
    replayed = world.run(name, "replay")
    assert world.outcome(replayed) == world.outcome(live)
    assert [model.seconds for model in models(world, replayed)] == [model.seconds for model in models(world, live)]
    assert replayed.policy_state == live.policy_state


@pytest.mark.soak("replays")
@pytest.mark.parametrize(
    "pipeline", [costly(seconds={"fixed": 0.5}), capped(cost={"fixed": 1.5})], ids=lambda content: content["name"]
)
def test_with_a_cost_model_in_the_spec_live_equals_replay(world_of, pipeline):
    world, name = world_of(pipeline), pipeline["name"]
    live = lived(world, name)
    world.replay(name)
    assert len(models(world, live)) > 1
    assert world.outcome(world.run(name, "replay")) == world.outcome(live)


@pytest.mark.soak("replays")
def test_the_recorded_trigger_with_the_same_key_counts_before_the_one_with_the_same_ordinal(world_of):
    world = world_of(amount("every_40", every=40), amount("every_80", every=80))
    world.deliver(range(4))
    world.replay("every_40")
    source = world.run("every_40", "replay")
    world.replay("every_80", costs_from=source.id)
    recorded = [model.seconds for model in models(world, source)]
    taken = models(world, world.run("every_80", "replay"))
    assert [model.seconds for model in taken] == [recorded[1], recorded[3]]


def test_a_trigger_whose_costs_nobody_recorded_fails_before_it_trains(world_of):
    world = world_of(amount(every=40))
    world.deliver(range(2))
    world.replay("by_amount", ["day_00"])
    source = world.run("by_amount", "replay")
    with pytest.raises(TriggerFailed, match=rf"run {source.id} \(costs_from\) trained no model at key"):
        world.replay("by_amount", name="further", costs_from=source.id)
    further = world.run_named("by_amount", "further")
    assert [row.state for row in world.triggers(further.id)] == ["trained", "failed"]
