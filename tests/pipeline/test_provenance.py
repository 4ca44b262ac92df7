"""Models of pipelines that are stored as how they were trained: trained again bit for bit, or refused by field."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.errors import ConfigError, NotAllowed, NotReproducible, WeightsNotStored
from modyn_dagster.model_store import Environment, ModelStore, Provenance
from modyn_dagster.model_store.format.record import Record
from modyn_dagster.pipeline.stages.model.model_saving import stored_exactly
from modyn_dagster.pipeline.weights import cache_weights, on_platform, weights_of
from modyn_dagster.spec.load import parse_spec
from modyn_dagster.spec.operation import PricesSpec
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.values import digest
from tests.pipeline.deleting import delete, keys_of
from tests.pipeline.world import World
from tests.projects.tiny import Content, amount

PROVENANCE: dict[str, Any] = {"model_store": {"strategy": "provenance"}}
#: Every training starts from the model before, and goes on with its optimizer.
CHAINED = {"use_previous_model": True, "carry_optimizer": True}


def chained(**fields: Any) -> Content:
    content = amount(every=40, **fields)
    return content | {"training": content["training"] | CHAINED}


def models_of(world: World) -> list[ModelRow]:
    with world.platform.transaction() as conn:
        return list_models(conn, world.run("by_amount", "replay").id)


def forget(world: World) -> None:
    """Nothing is kept of the weights."""
    for model in world.platform.weight_cache.list():
        world.platform.weight_cache.delete(model)


def spec_of(world: World) -> PipelineSpec:
    return world.platform.pipeline("by_amount")


@pytest.mark.soak("replays")
@pytest.mark.parametrize("training", [{}, CHAINED], ids=["afresh", "from the one before"])
def test_how_models_are_stored_changes_neither_them_nor_how_they_are_judged(world_of, training):
    contents = [amount(every=40), amount("others", every=40, model_store={"strategy": "provenance", "root": "elsewhere"})]
    world = world_of(*[content | {"training": content["training"] | training} for content in contents])
    world.deliver(range(3))
    outcomes = []
    for name in ("by_amount", "others"):
        world.replay(name, world.keys()[:2])
        forget(world)
        world.replay(name)
        outcomes.append(world.outcome(world.run(name, "replay")))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0]["evaluations"]


@pytest.mark.soak("replays")
def test_models_without_weights_come_back_by_training(world_of):
    world = world_of(chained(**PROVENANCE))
    world.deliver(range(3))
    world.replay("by_amount")
    store, models = world.platform.model_store, models_of(world)
    infos = [store.info(model.hash) for model in models]
    assert [info.strategy for info in infos] == ["provenance"] * 3
    assert [info.base for info in infos] == [None, models[0].hash, models[1].hash]
    assert all(info.n_bytes < 50_000 for info in infos)
    assert infos[1].needs == (models[0].hash,)
    with pytest.raises(WeightsNotStored, match="retrain=True"):
        store.load(models[-1].hash)
    forget(world)
    with on_platform(world.platform):
        state = store.load(models[-1].hash, retrain=True, environment="require")
    assert Record.of(state).id == models[-1].hash
    assert list(weights_of(world.platform, spec_of(world), models[1].hash)) == list(state)
    assert world.platform.weight_cache.list() == [models[1].hash]
    # And the next trigger starts from what is trained again.
    forget(world)
    world.deliver([3])
    world.replay("by_amount")
    assert len(models_of(world)) == 4
    assert stored_exactly(store, models_of(world)[-1]).passed


def test_the_environment_names_the_platform_where_nobody_does(world_of, monkeypatch):
    world = world_of(amount(every=40, **PROVENANCE))
    world.deliver([0])
    world.replay("by_amount")
    for name, value in world.settings.environment().items():
        monkeypatch.setenv(name, value)
    [model] = models_of(world)
    assert Record.of(world.platform.model_store.load(model.hash, retrain=True)).id == model.hash
    folder = world.platform.model_store.root
    with pytest.raises(NotAllowed):
        ModelStore(folder).load(model.hash, retrain=True)


def test_deleted_data_are_refused_by_field(world_of):
    world = world_of(chained(**PROVENANCE))
    world.deliver(range(2))
    world.replay("by_amount")
    first, second = world.triggers(world.run("by_amount", "replay").id, "trained")
    delete(world, keys_of(world, second)[:1])
    one, other = models_of(world)
    forget(world)
    assert weights_of(world.platform, spec_of(world), one.hash)
    with pytest.raises(NotReproducible, match=r"data\.keys: expected \d+ samples, found sample \d+ deleted"):
        weights_of(world.platform, spec_of(world), other.hash)
    path = world.platform.home / "training_sets"
    [file, *_] = sorted(path.rglob("*.arrow"), reverse=True)
    file.unlink()
    with pytest.raises(NotReproducible, match=r"data\.training_set"):
        weights_of(world.platform, spec_of(world), other.hash)
    assert first.ordinal == 0


def test_a_training_set_that_retention_removed_is_selected_again(world_of):
    world = world_of(amount(every=40, **PROVENANCE))
    world.deliver(range(1))
    world.replay("by_amount")
    forget(world)
    for file in (world.platform.home / "training_sets").rglob("*.arrow"):
        file.unlink()
    assert weights_of(world.platform, spec_of(world), models_of(world)[0].hash)


def test_another_environment_or_code_is_refused_by_field(world_of, monkeypatch):
    world = world_of(amount(every=40, **PROVENANCE))
    world.deliver([0])
    world.replay("by_amount")
    [model], store = models_of(world), world.platform.model_store
    recorded = store.environment(model.hash)
    assert recorded is not None
    assert recorded == replace(Environment.now(), threads=1)
    here = replace(Environment.now(), torch="1.7.1")
    with on_platform(world.platform), monkeypatch.context() as patched:
        patched.setattr(Environment, "now", classmethod(lambda cls: here))
        with pytest.raises(NotReproducible, match=r"environment\.torch: expected .*, found 1\.7\.1"):
            store.load(model.hash, retrain=True, environment="require")
    monkeypatch.setattr("modyn_dagster.model_store.provenance.retraining.code_version", lambda function: f"another of {function}")
    with on_platform(world.platform):
        with pytest.raises(NotReproducible, match="code: expected") as caught:
            store.load(model.hash, retrain=True, environment="require")
        assert caught.value.field == "code"
        with pytest.warns(UserWarning, match="trained with code"):
            store.load(model.hash, retrain=True)


def test_a_trigger_that_the_catalog_lacks_is_named(world_of):
    world = world_of(amount(every=40, **PROVENANCE))
    world.deliver([0])
    world.replay("by_amount")
    [model] = models_of(world)
    other = ModelStore(world.platform.home / "others", allow=world.platform.model_store.allow)
    provenance = world.platform.model_store.info(model.hash).provenance
    assert provenance is not None
    state = {"a": torch.ones(1)}
    for field, args in {"args.trigger": {"trigger": "000099-000000"}, "seed": {}}.items():
        content = {**provenance, "args": {**provenance["args"], **args}, "seed": 1 if field == "seed" else provenance["seed"]}
        saved = other.save(state, strategy="provenance", provenance=Provenance.parse(content, None))
        with on_platform(world.platform), pytest.raises(NotReproducible, match=field):
            other.load(saved, retrain=True)
        other.delete(saved)


def test_adaptive_trains_again_only_where_the_spec_lets_it(world_of):
    prices = PricesSpec(store=1e9, save=0, recover=0).model_dump()
    stores = {name: {"prices": prices, "retrain": name == "others", "root": name} for name in ("by_amount", "others")}
    world = world_of(*[amount(name, every=40, model_store=store) for name, store in stores.items()])
    world.deliver([0])
    strategies = {}
    for name in stores:
        world.replay(name)
        store = world.platform.models_of(world.platform.pipeline(name))
        [info] = map(store.info, store.list())
        strategies[name] = info.strategy
        assert (info.provenance is not None) == (name == "others")
    # A record takes as many bytes as this small model; what matters is that it was weighed.
    assert strategies["by_amount"] == "snapshot"
    assert ("provenance" in info.reason, world.platform.weight_cache.list() == []) == (True, info.strategy != "provenance")


def test_only_the_newest_weights_are_kept(tmp_path):
    kept = ModelStore(tmp_path)
    ids = []
    for n in range(10):
        state = {"a": torch.tensor([float(n)])}
        cache_weights(kept, state)
        ids.append(Record.of(state).id)
        os.utime(kept.info(ids[-1]).path, ns=(n, n))
    assert kept.list() == sorted(ids[-8:])


def test_the_models_of_a_pipeline_may_be_elsewhere(world_of, tmp_path):
    world = world_of(amount(every=40, model_store={"root": f"file://{tmp_path}/elsewhere"}))
    world.deliver(range(2))
    world.replay("by_amount")
    models = [model.hash for model in models_of(world)]
    assert ModelStore(Path(tmp_path) / "elsewhere").list() == sorted(models)
    assert world.platform.model_store.list() == []


def test_models_may_be_in_memory_of_fsspec(world_of):
    world = world_of(amount(every=40, model_store={"root": "memory://models/of_a_pipeline", "strategy": "delta"}))
    world.deliver(range(2))
    world.replay("by_amount")
    store = world.platform.models_of(spec_of(world))
    assert store.list() == sorted(model.hash for model in models_of(world))
    assert all(stored_exactly(store, model).passed for model in models_of(world))


@pytest.mark.parametrize("root", ["s3://ann:SECRET@host/models", "https://host/models?token=SECRET"])
def test_a_password_in_a_spec_is_refused_and_not_repeated(root):
    with pytest.raises(ConfigError, match=r"model_store.root: .*environment") as caught:
        parse_spec(amount(model_store={"root": root}), PipelineSpec, source="test")
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("store", [{"strategy": "provenance"}, {"retrain": True}])
def test_only_deterministic_trainings_are_trained_again(store):
    content = amount(model_store=store)
    content["training"] = {**content["training"], "deterministic": False}
    with pytest.raises(ConfigError, match="deterministic"):
        parse_spec(content, PipelineSpec, source="test")
    forgetful = chained(model_store=store, retention={"optimizers": 2})
    with pytest.raises(ConfigError, match=r"retention\.optimizers: null"):
        parse_spec(forgetful, PipelineSpec, source="test")
    with pytest.raises(ConfigError, match="retrain needs strategy adaptive"):
        parse_spec(amount(model_store={"strategy": "delta", "retrain": True}), PipelineSpec, source="test")


def test_the_version_of_code_is_that_of_its_package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "versioned").mkdir()
    for name in ("__init__", "one", "two"):
        (tmp_path / "versioned" / f"{name}.py").write_text("")
    version = digest.code_version.__wrapped__
    before = version("versioned.one:train")
    assert before == version("versioned.two:other")
    (tmp_path / "versioned" / "two.py").write_text("x = 1")
    assert version("versioned.one:train") != before
    assert version("nowhere_to_be_found.x:y") is None


def test_every_place_with_models_is_cleaned(world_of, tmp_path):
    roots = [f"file://{tmp_path}/elsewhere", f"file://{tmp_path}/elsewhere", None]
    names = [f"p{n}" for n in range(3)]
    world = world_of(*[amount(name, model_store={"root": root}) for name, root in zip(names, roots, strict=True)])
    stores = world.platform.every_model_store()
    assert [store.root for store in stores] == [world.platform.home / "models", tmp_path / "elsewhere"]
