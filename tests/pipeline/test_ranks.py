"""Pipelines whose models are trained in ranks: live as replayed, retrained from provenance, refused before a run."""

from collections.abc import Callable
from typing import Any

import pytest

from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.errors import ConfigError
from modyn_dagster.pipeline.preflight import require_runnable
from modyn_dagster.spec.load import parse_spec, spec_hash
from modyn_dagster.spec.pipeline import PipelineSpec
from tests.pipeline.world import World
from tests.projects.tiny import Content, amount

MakeWorld = Callable[..., World]


def pipeline(**training: Any) -> Content:
    content = amount(every=40)
    content["training"] |= {"epochs": 2, "batch_size": 10, "checkpoint": {"steps": 3}} | training
    return content


def models(world: World, mode: str) -> list[ModelRow]:
    with world.platform.transaction() as conn:
        return list_models(conn, world.run("by_amount", mode).id)


@pytest.mark.process
@pytest.mark.soak("distributed")
def test_a_live_run_in_ranks_equals_its_replay_and_its_models_are_retrained(world_of: MakeWorld) -> None:
    carried = {"ranks": 2, "use_previous_model": True, "carry_optimizer": True}
    world = world_of(pipeline(**carried) | {"model_store": {"retrain": True}})
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    world.replay("by_amount")
    live, replayed = models(world, "live"), models(world, "replay")
    assert [model.hash for model in live] == [model.hash for model in replayed]
    assert len(live) == 3
    for model in live:
        surroundings = model.training["surroundings"]
        assert (surroundings["ranks"], surroundings["backend"]) == (2, "gloo")
        provenance = world.platform.model_store.info(model.hash).provenance
        assert provenance is not None
    # Training a trained trigger again must reach the same hash, or it would raise.
    for trigger in world.triggers(world.run("by_amount", "live").id):
        world.train("by_amount", trigger)
    assert not list((world.platform.home / "checkpoints").rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"ranks": 11}, r"pipeline by_amount: training\.ranks: must not exceed `batch_size`, 10"),
        (
            {"ranks": 2, "transforms": [{"function": "tests.training.ranks_user_code:rounded", "per": "batch"}]},
            r"training\.transforms\.0\.per: sees one rank's share of a batch with `ranks: 2`; use `per: sample`",
        ),
    ],
)
def test_ranks_that_cannot_share_a_training_are_refused_before_a_run(
    world_of: MakeWorld, training: dict[str, Any], message: str
) -> None:
    world = world_of(pipeline(**training))
    project = world.platform.project
    with pytest.raises(ConfigError, match=message):
        require_runnable(project.pipelines["by_amount"], next(iter(project.datasets.values())))


@pytest.mark.parametrize("ranks", [0, -1, 1.5, "two"])
def test_a_number_of_ranks_is_at_least_one(ranks: object) -> None:
    with pytest.raises(ConfigError, match=r"training\.ranks"):
        parse_spec(pipeline(ranks=ranks), PipelineSpec, source="p")


def test_one_rank_is_no_change_of_a_spec_and_two_are() -> None:
    one, two = (spec_hash(parse_spec(pipeline(ranks=n), PipelineSpec, source="p")) for n in (1, 2))
    assert one == spec_hash(parse_spec(pipeline(), PipelineSpec, source="p")) != two
    assert "ranks" not in parse_spec(pipeline(ranks=1), PipelineSpec, source="p").model_dump()["training"]
