"""Deletion requests and files of initial weights: models that began with the weights of a model that goes, go too."""

from typing import Any

import numpy as np
import pytest
from safetensors.torch import save_file

from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.pipeline.operate.model_lineage import trained_on
from modyn_dagster.pipeline.operate.sample_lineage import usages_of
from tests.pipeline.deleting import EVERY, execute, keys_of, plan
from tests.pipeline.test_judged_on import add_dataset, deliver_other
from tests.pipeline.world import World
from tests.projects.tiny import amount, write_pipeline

SPLIT = {"train": 0.8, "evaluate": 0.2}
FILE = "weights.safetensors"


def from_file(name: str, dataset: str | None = None) -> dict[str, Any]:
    content = amount(name, every=EVERY)
    content["training"] |= {"initial_weights": FILE}
    return content | ({} if dataset is None else {"dataset": dataset})


def hashes(world: World, name: str) -> list[str]:
    with world.platform.transaction() as conn:
        return [model.hash for model in list_models(conn, world.run(name, "live").id)]


def exported(world: World) -> int:
    """Export the third model of ``by_amount`` to the project; returns a key of its training set."""
    model = hashes(world, "by_amount")[2]
    save_file(world.platform.model_store.load(model), world.folder / FILE)
    return int(keys_of(world, world.triggers(world.run("by_amount", "live").id)[2])[0])


def test_models_that_began_with_a_file_of_a_models_weights_are_in_its_lineage_and_are_withdrawn(world_of) -> None:
    world = world_of(amount(every=EVERY), from_file("from_file"), split=SPLIT)
    world.deliver(range(4))
    world.live_until_idle("by_amount")
    key = exported(world)
    world.live_until_idle("from_file")
    uses = usages_of(world.platform, world.run("by_amount", "live").dataset_id, np.array([key], np.uint64))
    found = {(use.used_by.pipeline, use.used_by.ordinal): use.sources for use in uses}
    own = hashes(world, "from_file")
    began = {("from_file", n): ("initial_weights",) for n in range(len(own))}
    both = ("training_set", "initial_weights")
    assert found == {("by_amount", 2): ("training_set",), **began, ("from_file", 2): both}
    assert hashes(world, "by_amount")[2] in {each.used.model_hash for each in trained_on(world.platform, own[0])}
    planned = {action.pipeline: action for action in plan(world, [key]).actions}
    assert (planned["by_amount"].way, planned["from_file"].way) == ("roll_back", "retire")
    assert "initial_weights" in planned["from_file"].costs[0].refused
    before = hashes(world, "by_amount")
    document = execute(world, [key])
    assert hashes(world, "by_amount") == [*before[:2], before[3]]
    assert hashes(world, "from_file") == []
    assert world.reread(world.run("from_file", "live").id).state == "stopped"
    assert world.reread(world.run("by_amount", "live").id).state == "active"
    [note] = [note for note in document.notes if "initial_weights" in note]
    assert "pipeline from_file" in note
    assert "pipeline resume from_file" in note


@pytest.mark.soak("deletions")
def test_a_model_of_another_dataset_that_began_with_such_a_file_is_withdrawn_too(world_of) -> None:
    world = world_of(amount(every=EVERY), split=SPLIT)
    world.deliver(range(4))
    world.live_until_idle("by_amount")
    key = exported(world)
    add_dataset(world.folder)
    write_pipeline(world.folder, from_file("elsewhere", "other"))
    world.reload()
    deliver_other(world, range(2))
    world.live_until_idle("elsewhere")
    assert hashes(world, "elsewhere")
    document = execute(world, [key])
    assert {model.pipeline for model in document.models} == {"by_amount", "elsewhere"}
    assert hashes(world, "elsewhere") == []
