"""Models as pipelines store them: each with the one before as its base, as the spec says, and exactly."""

import logging

import pytest
import torch

from modyn_dagster.catalog.results.models import find_model, list_models
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.errors import ConfigError, CorruptFile
from modyn_dagster.model_store import Adaptive, ChangedLayers, Delta, ModelInfo, Prices, Snapshot
from modyn_dagster.pipeline.stages.model.model_saving import storage_strategy, stored_exactly
from modyn_dagster.spec.load import parse_spec, spec_hash
from modyn_dagster.spec.operation import ModelStoreSpec
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.training.module import build_module
from tests.pipeline.world import World
from tests.projects.tiny import USER_CODE, amount, custom
from tests.variants import represented


def stored(world: World, run: RunRow) -> list[ModelInfo]:
    with world.platform.transaction() as conn:
        models = list_models(conn, run.id)
    return [world.platform.model_store.info(model.hash) for model in models]


@represented("content", {"adaptive": {}, "snapshot": {"model_store": {"strategy": "snapshot"}}}, "replays", "adaptive")
def test_every_model_derives_from_the_one_before_in_its_run(world_of, content):
    world = world_of(amount(every=40, **content))
    world.deliver(range(4))
    world.replay("by_amount")
    infos = stored(world, world.run("by_amount", "replay"))
    assert [info.base for info in infos] == [None, *(info.id for info in infos[:-1])]
    assert len(infos) == 4
    assert all(info.architecture is not None and info.reason for info in infos)


def test_the_spec_says_how_models_are_stored(world_of):
    world = world_of(amount(every=40, model_store={"strategy": "delta", "operator": "xor", "full_model_interval": 2}))
    world.deliver(range(4))
    world.replay("by_amount")
    run = world.run("by_amount", "replay")
    assert [info.strategy for info in stored(world, run)] == ["snapshot", "delta", "snapshot", "delta"]
    store = world.platform.model_store
    assert store.verify() == []


@pytest.mark.soak("replays")
def test_how_it_is_stored_changes_no_model_and_starts_no_new_run(world_of):
    world = world_of(amount(every=40), amount("others", every=40, model_store={"strategy": "changed_layers"}))
    world.deliver(range(3))
    for name in ("by_amount", "others"):
        world.replay(name)
    one, other = (world.outcome(world.run(name, "replay"))["models"] for name in ("by_amount", "others"))
    assert one == other
    contents = (amount(), amount(model_store={"strategy": "delta"}))
    specs = [parse_spec(content, PipelineSpec, source="test") for content in contents]
    assert spec_hash(specs[0]) == spec_hash(specs[1])


def test_a_base_that_was_lost_costs_the_difference_and_not_the_model(world_of, caplog):
    world = world_of(amount(every=40, model_store={"strategy": "delta"}))
    world.deliver(range(1))
    world.replay("by_amount")
    [first] = stored(world, world.run("by_amount", "replay"))
    first.path.write_bytes(first.path.read_bytes()[:-1])
    world.deliver([1])
    # Judging the damaged one on new data is what fails, after the new one was stored.
    with caplog.at_level(logging.WARNING), pytest.raises(CorruptFile):
        world.replay("by_amount")
    with world.platform.transaction() as conn:
        second = list_models(conn, world.run("by_amount", "replay").id)[1]
    assert world.platform.model_store.info(second.hash).base is None
    assert "stored without its base" in caplog.text
    assert stored_exactly(world.platform.model_store, second).passed


def test_what_the_store_does_not_give_back_fails_the_check(world_of):
    world = world_of(amount(every=40))
    world.deliver(range(1))
    world.replay("by_amount")
    run = world.run("by_amount", "replay")
    [info], [trigger] = stored(world, run), world.triggers(run.id)
    with world.platform.transaction() as conn:
        row = find_model(conn, trigger.id)
    assert row is not None
    content = bytearray(info.path.read_bytes())
    assert stored_exactly(world.platform.model_store, row).passed
    content[-1] ^= 1
    info.path.write_bytes(content)
    found = stored_exactly(world.platform.model_store, row)
    assert (found.passed, found.blocking, found.metadata["damaged"]) == (False, True, 1)
    assert "tensor '" in found.description
    info.path.unlink()
    assert "no model" in stored_exactly(world.platform.model_store, row).description


def test_a_model_of_a_pipeline_is_exported_and_predicts_as_before(world_of, tmp_path):
    world = world_of(amount(every=40))
    world.deliver(range(1))
    world.replay("by_amount")
    store = world.platform.model_store
    [info] = stored(world, world.run("by_amount", "replay"))
    assert info.architecture is not None
    module = build_module(info.architecture["args"]["architecture"])
    store.load_into(info.id, module)
    inputs = {"features": torch.linspace(-2, 2, 16, dtype=torch.float64).reshape(8, 2)}
    store.export(info.id, tmp_path / "model.pt2", inputs=(inputs,))
    exported = torch.export.load(tmp_path / "model.pt2").module()
    assert torch.equal(exported(inputs), module.eval()(inputs))


def test_models_of_user_code_are_not_built_from_what_a_file_says(world_of, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(USER_CODE))
    world = world_of(custom("own", "tiny_models:linear"))
    world.deliver(range(3))
    world.replay("own")
    [info, *_] = stored(world, world.run("own", "replay"))
    with pytest.raises(ConfigError, match=r"model\.factory.*code of your own"):
        world.platform.model_store.export(info.id, tmp_path / "model.pt2", inputs=({},))


def test_specs_become_strategies():
    assert storage_strategy(ModelStoreSpec(), source="p") == Adaptive(Prices(), None, Delta())
    limited = ModelStoreSpec(max_recovery_seconds=2, operator="xor", full_model_interval=None, prices={"store": 3})
    assert storage_strategy(limited, source="p") == Adaptive(Prices(store=3), 2, Delta("xor", 1, None))
    assert storage_strategy(ModelStoreSpec(strategy="delta", max_depth=3), source="p") == Delta(max_depth=3)
    assert storage_strategy(ModelStoreSpec(strategy="snapshot"), source="p") == Snapshot()
    assert storage_strategy(ModelStoreSpec(strategy="changed_layers"), source="p") == ChangedLayers()


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"strategy": "delta", "max_recovery_seconds": 1}, "needs strategy adaptive"),
        ({"strategy": "zip"}, "strategy"),
        ({"full_model_interval": 0}, "full_model_interval"),
        ({"max_depth": 17}, "max_depth"),
        ({"prices": {"store": -1}}, "store"),
        ({"max_recovery_seconds": 0}, "max_recovery_seconds"),
    ],
)
def test_impossible_settings_are_refused_with_their_field(content, field):
    with pytest.raises(ConfigError, match=rf"model_store.*{field}"):
        parse_spec(amount(model_store=content), PipelineSpec, source="test")
