"""Models that several runs name, stored as how one of them trained it: they outlive the run that the recipe names."""

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.database.mapping import metadata
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.runs import RunRow, pipeline_run
from modyn_dagster.catalog.triggers import trigger
from modyn_dagster.errors import NotReproducible
from modyn_dagster.model_store.format.record import Record
from modyn_dagster.pipeline.operate.removal.completion import complete
from modyn_dagster.pipeline.operate.removal.pipelines import commit_pipeline_removal, plan_pipeline_removal
from modyn_dagster.pipeline.weights import weights_of
from tests.pipeline.start.comparing import start
from tests.pipeline.world import World
from tests.projects.tiny import Content, amount

Worlds = Callable[..., World]

TRAININGS = pytest.mark.parametrize(
    "training",
    [
        pytest.param({}, id="afresh", marks=pytest.mark.soak("production")),
        pytest.param({"use_previous_model": True, "carry_optimizer": True}, id="from the one before"),
    ],
)


def recipes(name: str, training: Content) -> Content:
    content = amount(name, every=40, model_store={"strategy": "provenance"})
    return content | {"training": content["training"] | training}


def recover(world: World, run: RunRow) -> None:
    """Train every model of a run again."""
    for model in world.platform.weight_cache.list():
        world.platform.weight_cache.delete(model)
    with world.platform.transaction() as conn:
        hashes = [model.hash for model in list_models(conn, run.id)]
    assert len(hashes) > 1
    for model in reversed(hashes):
        assert Record.of(weights_of(world.platform, world.platform.spec_of(run), model)).id == model


def named_by_recipes(world: World) -> set[str]:
    """Pipelines and runs that the recipes of all models name."""
    infos = map(world.platform.model_store.info, world.platform.model_store.list())
    args = [info.provenance["args"] for info in infos if info.provenance is not None]
    return {f"{each['pipeline']} {each['trigger'].partition('-')[0]}" for each in args}


def remove_rows(world: World, run: RunRow) -> None:
    """Remove a run with all that belongs to it."""
    triggers = sa.select(trigger.c.id).where(trigger.c.run_id == run.id)
    with world.platform.transaction() as conn:
        for table in reversed(metadata.sorted_tables):
            if "trigger_id" in table.c:
                conn.execute(sa.delete(table).where(table.c.trigger_id.in_(triggers)))
            if "run_id" in table.c:
                conn.execute(sa.delete(table).where(table.c.run_id == run.id))
        conn.execute(sa.delete(pipeline_run).where(pipeline_run.c.id == run.id))


@pytest.mark.soak("replays")
@TRAININGS
def test_models_outlive_another_pipeline_that_trained_them_first(world_of: Worlds, training: Content) -> None:
    # The third one has the same training sets and other models.
    other = recipes("other", training)
    other["training"]["epochs"] = 5
    world = world_of(other, recipes("first", training), recipes("second", training))
    world.deliver(range(3))
    for name in ("other", "first", "second"):
        world.replay(name)
    second = world.run("second", "replay")
    assert named_by_recipes(world) == {"other 000001", "first 000002"}
    commit_pipeline_removal(world.platform, plan_pipeline_removal(world.platform, "first"))
    assert complete(world.platform, "pipeline", "first", lambda _: iter(())) == []
    recover(world, second)


@pytest.mark.soak("replays")
@TRAININGS
def test_models_of_a_live_run_outlive_the_replay_that_it_took_over(world_of: Worlds, training: Content) -> None:
    world = world_of(recipes("by_amount", training))
    world.deliver(range(3))
    world.replay("by_amount")
    live = start(world, "by_amount")
    assert named_by_recipes(world) == {"by_amount 000001"}
    remove_rows(world, world.run("by_amount", "replay"))
    recover(world, live)
    world.deliver([3])
    world.live_until_idle("by_amount")
    recover(world, live)


def test_a_model_whose_trigger_is_gone_is_named_where_no_other_run_has_it(world_of: Worlds) -> None:
    world = world_of(recipes("by_amount", {}))
    world.deliver(range(2))
    world.replay("by_amount")
    run = world.run("by_amount", "replay")
    model = world.platform.model_store.list()[0]
    remove_rows(world, run)
    world.platform.weight_cache.delete(model)
    with pytest.raises(NotReproducible, match=r"args\.trigger: expected 000001-00000\d, found no such trigger in the catalog"):
        weights_of(world.platform, world.platform.spec_of(run), model)
