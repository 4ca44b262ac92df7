"""Pipelines with intervals of the user's own: a built-in kind written anew gives the same cells, live and replayed."""

from typing import Any

import pytest

from modyn_dagster.errors import ConfigError
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from tests.evaluation import user_intervals
from tests.pipeline.world import World
from tests.projects.tiny import Content, amount

OWN: dict[str, Any] = {"kind": "custom", "factory": f"{user_intervals.__name__}:tumbling", "config": {"seconds": 172_800}}


def evaluated_on(name: str, **intervals: Any) -> Content:
    content = amount(name, every=60)
    content["evaluation"] = content["evaluation"] | {"intervals": intervals, "matrix": "composite"}
    return content


def replayed(world: World, name: str) -> list[Any]:
    world.replay(name)
    return list(world.outcome(world.run(name, "replay"))["evaluations"])


def test_a_built_in_kind_written_anew_gives_the_same_cells(world_of: Any) -> None:
    world = world_of(evaluated_on("own", **OWN), evaluated_on("built_in", kind="tumbling", every="2d"))
    world.deliver(range(5))
    found = replayed(world, "own")
    assert found == replayed(world, "built_in")
    assert found


@pytest.mark.soak("replays")
def test_a_live_run_has_the_cells_of_a_replay(world_of: Any) -> None:
    follows = OWN | {"factory": f"{user_intervals.__name__}:between_triggers", "config": {}, "follows_models": True}
    world = world_of(evaluated_on("own", **OWN), evaluated_on("following", **follows))
    for day in range(5):
        world.deliver([day])
        for name in ("own", "following"):
            world.live_until_idle(name)
    for name in ("own", "following"):
        live = world.run(name, "live")
        list(finish_live_run(world.platform, live))
        world.replay(name)
        assert world.outcome(world.reread(live.id)) == world.outcome(world.run(name, "replay"))


def test_a_factory_that_refuses_its_config_stops_the_run_before_it_begins(world_of: Any) -> None:
    world = world_of(evaluated_on("own", **OWN | {"config": {"weeks": 1}}))
    world.deliver(range(2))
    with pytest.raises(ConfigError, match=r"pipeline own: evaluation.intervals.config.* refused it"):
        world.replay("own")
