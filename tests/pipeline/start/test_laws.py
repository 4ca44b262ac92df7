"""The law of a start from a replay: the same end as of a live run that was there from the beginning."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from modyn_dagster.catalog.database.urls import database_url
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from tests.conftest import TEMPLATE, RunningServer
from tests.pipeline.labels.laws import SPLIT, Delivery, drawn_labels, known_by, replayed
from tests.pipeline.labels.pipelines import ONLY_LATE, POLICIES, SELECTIONS, STRATEGIES, TRIGGERS, pipeline_of
from tests.pipeline.late_labels import arrive_later
from tests.pipeline.start.comparing import facts, start
from tests.pipeline.world import World, make_world
from tests.projects.tiny import Content, amount, timed
from tests.variants import represented

Worlds = Callable[..., World]

DAYS = 6
#: Batches that the replay has walked; the others are the live run's.
REPLAYED = 3


def started(world: World, pipeline: str, first: int = 0) -> RunRow:
    """A live run that takes over a replay of some batches, and gets the others one after the other."""
    world.deliver(range(REPLAYED))
    world.replay(pipeline, world.keys()[first:])
    return gone_on(world, pipeline)


def gone_on(world: World, pipeline: str) -> RunRow:
    run = start(world, pipeline)
    for day in range(REPLAYED, DAYS):
        world.deliver([day])
        world.live_until_idle(pipeline)
    assert world.run(pipeline, "live").id == run.id
    list(finish_live_run(world.platform, run))
    return world.reread(run.id)


def always_there(world: World, pipeline: str) -> RunRow:
    """A live run over the same batches, from the beginning."""
    for day in range(DAYS):
        world.deliver([day])
        world.live_until_idle(pipeline)
    run = world.run(pipeline, "live")
    list(finish_live_run(world.platform, run))
    return world.reread(run.id)


@pytest.fixture
def elsewhere(postgres_server: RunningServer, tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Makes a world in a catalog of its own: equal models in one catalog lend each other their predictions and scores."""
    home = tmp_path / "elsewhere"
    home.mkdir()
    settings = postgres_server.settings(tmp_path, home, f"t{secrets.token_hex(4)}_")
    postgres_server.create_database(f"{settings.database_prefix}modyn", TEMPLATE)
    with ExitStack() as stack:

        def make(*pipelines: Content, **options: Any) -> World:
            world = make_world(settings, tmp_path / "project elsewhere", pipelines, **options)
            stack.callback(world.close)
            return world

        yield make
    postgres_server.drop_database(str(database_url(settings, "modyn").database))


def carrying() -> Content:
    """Trains on the last two windows, and goes on from the previous model with the states of its optimizer."""
    content = timed("late", every="1d")
    content["training"] |= {"carry_optimizer": True, "optimizer": {"name": "sgd", "momentum": 0.9}}
    return content


#: Pipelines with state that no policy or strategy has.
OTHERS: dict[str, Content] = {
    "previous model and optimizer": carrying(),
    "at most some triggers": amount("late", every=30) | {"trigger": {"kind": "amount", "every": 30, "max_triggers": 5}},
}
VARIANTS = [variant for variant in (*OTHERS, *TRIGGERS, *STRATEGIES) if variant not in ONLY_LATE]


@pytest.mark.long
@represented("variant", VARIANTS, "golden", "drift")
def test_a_run_that_takes_over_a_replay_comes_to_the_end_of_one_that_was_always_there(
    world_of: Worlds, elsewhere: Worlds, variant: str
) -> None:
    content = OTHERS[variant] if variant in OTHERS else pipeline_of(variant)
    if content["trigger"]["kind"] == "budget":
        # Otherwise its ledger holds the seconds of this machine.
        content["trigger"] = content["trigger"] | {"seconds": 1e6, "cost": {"fixed": 1, "per_sample": 0.01}}
    world, other = world_of(content, split=SPLIT), elsewhere(content, split=SPLIT)
    found, expected = facts(world, started(world, "late")), facts(other, always_there(other, "late"))
    assert found == expected
    assert found["models"]


@pytest.mark.long
@pytest.mark.soak("golden")
@pytest.mark.parametrize("variant", [*POLICIES, *SELECTIONS])
def test_it_does_so_where_labels_arrive_later(world_of: Worlds, elsewhere: Worlds, variant: str) -> None:
    ends: list[dict[str, Any]] = []
    for world in (world_of(pipeline_of(variant), split=SPLIT), elsewhere(pipeline_of(variant), split=SPLIT)):
        world.deliver(range(5))
        arrive_later(world, 2)
        Delivery.of(drawn_labels(3), 3)(world)
        if ends:
            replayed(world, "late", "")
            run = world.run("late", "replay")
        else:
            world.replay("late", world.keys()[:REPLAYED])
            run = start(world, "late")
            world.live_until_idle("late")
            list(finish_live_run(world.platform, run))
        ends.append(known_by(world, run, 5))
    assert ends[0] == ends[1]


@pytest.mark.soak("production")
@pytest.mark.long
def test_a_replay_that_began_later_gives_a_live_run_that_began_there(world_of: Worlds, elsewhere: Worlds) -> None:
    content = amount("late", every=35)
    world, other = world_of(content), elsewhere(content)
    run = started(world, "late", first=1)
    other.deliver(range(DAYS))
    other.replay("late", other.keys()[1:])
    assert facts(world, run) == facts(other, other.run("late", "replay"))


@pytest.mark.soak("production")
@pytest.mark.long
def test_with_its_recorded_seconds_a_replay_of_everything_decides_as_the_two_parts_did(world_of: Worlds) -> None:
    trigger = {"kind": "cost", "every": 20, "signal": "latency", "regret_per_training_second": 1e7}
    world = world_of(amount("late") | {"trigger": trigger})
    run = started(world, "late")
    world.replay("late", name="whole", costs_from=run.id)
    whole = world.run_named("late", "whole")
    assert facts(world, whole) == facts(world, run)
    assert world.decisions(run)
