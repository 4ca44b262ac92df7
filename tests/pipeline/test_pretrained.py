"""Pipelines of pretrained models: their reports, their store, their lineage, and what is refused before a run."""

from typing import Any, Final

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from modyn_dagster.assets.metadata.models import model_metadata
from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.errors import ConfigError
from modyn_dagster.pipeline.operate.sample_lineage import usages_of
from tests.pipeline.world import World
from tests.projects.tiny import Content, amount
from tests.training.pretrained.tuned_user_code import tuned

FILE: Final = "weights.safetensors"
MODEL: Final = {"factory": "tests.training.pretrained.tuned_user_code:tuned", "config": {"width": 420}}


def pipeline(name: str = "by_amount", every: int = 40, **fields: Any) -> Content:
    content = amount(name, every=every)
    content["training"] |= {"model": MODEL, "features": ["x", "y"]} | fields
    return content


def models(world: World, name: str = "by_amount") -> list[ModelRow]:
    with world.platform.transaction() as conn:
        return list(list_models(conn, world.run(name, "live").id))


def write_weights(world: World, n_outputs: int = 5) -> dict[str, torch.Tensor]:
    state = tuned(2, n_outputs, 420).state_dict()
    save_file(state, world.folder / FILE)
    return state


def test_every_model_begins_with_the_file_and_its_row_and_metadata_have_the_report(world_of) -> None:
    world = world_of(pipeline(pretrained={"weights": FILE, "freeze": ["stem.*", "norm.*", "blocks.*"]}))
    weights = write_weights(world)
    world.deliver(range(2))
    world.live_until_idle("by_amount")
    rows = models(world)
    assert len(rows) == 2
    for row in rows:
        state = world.platform.model_store.load(row.hash)
        assert torch.equal(state["body.blocks.0.weight"], weights["blocks.0.weight"])
        report = row.training["pretrained"]
        assert (report["missing"], report["unexpected"]) == ([], [])
        assert [each["name"] for each in report["reinitialised"]] == ["head.weight", "head.bias"]
    shown = model_metadata(rows[0])
    assert shown["pretrained"] == "11 tensors of the file, 0 missing, 0 unexpected, 2 reinitialised"
    assert shown["pretrained_names"]["reinitialised"] == ["head.weight [5, 420] -> [2, 420]", "head.bias [5] -> [2]"]
    assert rows[0].hash != rows[1].hash


LORA: Final = {"lora": {"rank": 2, "targets": ["blocks.*"]}}


@pytest.mark.parametrize(
    "fields", [{"freeze": ["blocks.*"]}, pytest.param(LORA, marks=pytest.mark.soak("replays"))], ids=["freeze", "lora"]
)
def test_the_frozen_base_of_a_pipeline_is_stored_once(world_of, fields: dict[str, Any]) -> None:
    world = world_of(pipeline(pretrained={"weights": FILE} | fields) | {"model_store": {"strategy": "snapshot"}})
    write_weights(world)
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    store = world.platform.model_store
    first, *later = [store.size(row.hash) for row in models(world)]
    assert len(later) == 2
    assert first > 2 * 420 * 420 * 4 * 0.8
    assert max(later) < first / 4


def test_a_model_that_began_with_an_exported_one_is_in_its_lineage(world_of) -> None:
    world = world_of(amount(every=40), pipeline("tuned", pretrained={"weights": FILE}, model={"name": "logistic_regression"}))
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    origin = models(world)[1]
    save_file(world.platform.model_store.load(origin.hash), world.folder / FILE)
    world.live_until_idle("tuned")
    assert all(row.training["initial_model"] == origin.hash for row in models(world, "tuned"))
    seen = int(world.triggers(world.run("by_amount", "live").id)[1].key)
    uses = usages_of(world.platform, world.run("by_amount", "live").dataset_id, np.array([seen], np.uint64))
    assert {use.used_by.pipeline for use in uses if "initial_weights" in use.sources} == {"tuned"}


def test_what_cannot_be_fine_tuned_is_refused_before_a_replay(world_of) -> None:
    world = world_of(pipeline(pretrained={"weights": FILE}), pipeline("frozen", pretrained={"freeze": ["*"]}))
    world.deliver(range(1))
    with pytest.raises(ConfigError, match=r"pipeline by_amount: training.pretrained.weights: there is no file"):
        world.replay("by_amount")
    with pytest.raises(ConfigError, match=r"pipeline frozen: training.pretrained.freeze: freezes every parameter"):
        world.replay("frozen")
