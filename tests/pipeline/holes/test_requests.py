"""Deletion requests ``as_if_deleted``: decisions, sets, models and scores are those of a replay that never had the samples."""

from collections.abc import Callable
from typing import Any

import pytest

from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.pipeline.replay.run import ReplayRequest
from modyn_dagster.pipeline.replay.walk import replay
from tests.pipeline.deleting import delete, execute
from tests.pipeline.holes.streams import drawn_holes
from tests.pipeline.inline_pool import InlinePool
from tests.pipeline.labels.laws import GAP, SPLIT, Delivery, drawn_labels, known_by
from tests.pipeline.labels.pipelines import ONLY_LATE, POLICIES, SELECTIONS, STRATEGIES, TRIGGERS, pipeline_of
from tests.pipeline.late_labels import arrive_later
from tests.pipeline.world import World
from tests.variants import represented

Worlds = Callable[..., World]

DAYS = 5


def everything(world: World, run: RunRow) -> dict[str, Any]:
    return world.outcome(run) | {"decisions": world.decisions(run)}


def oracle(world: World) -> dict[str, Any]:
    """A replay in which the samples that are deleted by now are holes from the beginning."""
    world.replay("late", name="oracle", as_if_deleted=True)
    return everything(world, world.run_named("late", "oracle"))


def every_variant(*shown: str) -> pytest.MarkDecorator:
    variants = [variant for variant in (*TRIGGERS, *STRATEGIES) if variant not in ONLY_LATE]
    return represented("variant", variants, "deletions", *shown)


@pytest.mark.long
@every_variant("uniform")
def test_a_replay_is_decided_anew_as_if_it_never_had_the_samples(world_of: Worlds, variant: str) -> None:
    world = world_of(pipeline_of(variant), split=SPLIT)
    world.deliver(range(DAYS))
    world.replay("late")
    old = world.run("late", "replay")
    counted = everything(world, old)
    document = execute(world, drawn_holes(5, DAYS), mode="as_if_deleted")
    [action] = document.actions
    assert (action.way, action.run_id, action.state) == ("decide_anew", old.id, "done")
    new = world.run("late", "replay")
    assert (new.id, new.state, new.last_ordinal) == (action.anew, "finished", old.last_ordinal)
    found = everything(world, new)
    assert found == oracle(world)
    assert found["models"]
    assert found["training_sets"] != counted["training_sets"]


@pytest.mark.long
@every_variant("uniform")
def test_a_live_run_is_decided_anew_as_if_it_never_had_the_samples(world_of: Worlds, variant: str) -> None:
    world = world_of(pipeline_of(variant), split=SPLIT)
    world.deliver(range(DAYS))
    world.live_until_idle("late")
    old = world.run("late", "live")
    document = execute(world, drawn_holes(6, DAYS), mode="as_if_deleted")
    assert world.reread(old.id).state == "ended"
    world.live_until_idle("late")
    new = world.run("late", "live")
    assert [action.anew for action in document.actions] == [new.id]
    found, expected = everything(world, new), oracle(world)
    # The replay has finished, and scored its last interval too.
    assert set(found.pop("evaluations")) <= set(expected.pop("evaluations"))
    assert found == expected
    assert found["models"]


@pytest.mark.long
@represented("variant", [*POLICIES, *SELECTIONS], "deletions")
def test_a_run_whose_labels_arrive_later_is_decided_anew_as_if_it_never_had_the_samples(world_of: Worlds, variant: str) -> None:
    world = world_of(pipeline_of(variant), split=SPLIT)
    world.deliver(range(DAYS))
    arrive_later(world, GAP)
    Delivery.of(drawn_labels(7), 7)(world)
    world.live_until_idle("late")
    execute(world, drawn_holes(8, DAYS), mode="as_if_deleted")
    world.live_until_idle("late")
    world.replay("late", name="oracle", as_if_deleted=True)
    live, replay = (known_by(world, run, DAYS) for run in (world.run("late", "live"), world.run_named("late", "oracle")))
    # The replay has finished, and scored its last interval too.
    assert set(live.pop("scores")) <= set(replay.pop("scores"))
    assert live == replay
    assert live["models"]


@pytest.mark.soak("deletions")
@pytest.mark.parametrize("variant", ["amount", "drift"])
def test_workers_make_the_same_of_a_stream_with_holes(world_of: Worlds, workers: Callable[..., InlinePool], variant: str) -> None:
    world = world_of(pipeline_of(variant), split=SPLIT)
    world.deliver(range(DAYS))
    delete(world, drawn_holes(9, DAYS))
    expected = oracle(world)
    request = ReplayRequest("late", world.keys(), "dagster-run", name="workers", as_if_deleted=True)
    list(replay(world.platform, request, pool=workers()))
    assert everything(world, world.run_named("late", "workers")) == expected
