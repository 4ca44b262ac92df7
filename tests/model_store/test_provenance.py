"""Models stored as their provenance: retrained bit for bit, or refused with the field that differs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from modyn_dagster.errors import ConfigError, CorruptFile, ModelInUse, NotAllowed, NotReproducible, StorageError, WeightsNotStored
from modyn_dagster.model_store import Adaptive, Architecture, Environment, ModelStore, Prices, Provenance, Snapshot
from modyn_dagster.model_store.format.hash_tree import model_id
from modyn_dagster.values.digest import checksum_of
from tests.model_store import trainings
from tests.model_store.states import assert_exact
from tests.model_store.test_pack_damage import pack_of, planted

TRAININGS = "tests.model_store.trainings"
TRAIN = f"{TRAININGS}:train"


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "models", allow=[TRAININGS])


def test_a_model_comes_back_by_training_again_along_its_lineage(store):
    state, base, saved = None, None, {}
    for n in range(3):
        provenance = Provenance(train=TRAIN, data=n, seed=n, args={"steps": 2})
        state = provenance.run(state, allow=[TRAININGS])
        base = store.save(state, base=base, strategy="provenance", provenance=provenance)
        saved[base] = state
        assert store.info(base).strategy == "provenance"
        assert store.size(base) < 5_000
    torch.manual_seed(99)
    generator = torch.get_rng_state()
    for model, expected in saved.items():
        assert_exact(store.load(model, retrain=True), expected)
    assert torch.equal(torch.get_rng_state(), generator)
    assert store.verify() == []


def test_the_thread_count_of_the_record_is_used_and_the_own_one_left(store):
    provenance = Provenance(train=TRAIN, environment=replace(Environment.now(), threads=1))
    model = store.save(provenance.run(None, allow=[TRAININGS]), strategy="provenance", provenance=provenance)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        store.load(model, retrain=True, environment="require")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_without_the_flag_nothing_is_trained(store):
    provenance = Provenance(train=TRAIN)
    model = store.save(provenance.run(None, allow=[TRAININGS]), strategy="provenance", provenance=provenance)
    with pytest.raises(WeightsNotStored, match="retrain=True"):
        store.load(model)


@pytest.mark.parametrize("allow", [[], ["tests.model_stor"], ["tests.model_store.trainings.more"], ["os"]])
def test_only_functions_below_allowed_prefixes_run(store, allow):
    provenance = Provenance(train=TRAIN)
    model = store.save(provenance.run(None, allow=["tests"]), strategy="provenance", provenance=provenance)
    with pytest.raises(NotAllowed, match=f"train: expected .*, found {TRAIN}"):
        ModelStore(store.root, allow=allow).load(model, retrain=True)
    assert_exact(
        ModelStore(store.root, allow=["tests.model_store"]).load(model, retrain=True),
        trained := provenance.run(None, allow=["tests"]),
    )
    assert trained


def test_a_training_that_gives_other_bits_is_refused(store):
    provenance = Provenance(train=f"{TRAININGS}:without_seed")
    model = store.save(trainings.train(None, data=5, seed=0), strategy="provenance", provenance=provenance)
    with pytest.raises(NotReproducible, match=f"hash: expected {model}, found"):
        store.load(model, retrain=True)


def test_another_environment_is_refused_or_told_by_field(store):
    provenance = Provenance(train=TRAIN, environment=replace(Environment.now(), torch="1.7.1"))
    model = store.save(provenance.run(None, allow=[TRAININGS]), strategy="provenance", provenance=provenance)
    with pytest.raises(NotReproducible, match=r"environment\.torch: expected 1\.7\.1, found") as caught:
        store.load(model, retrain=True, environment="require")
    assert caught.value.field == "environment.torch"
    with pytest.warns(UserWarning, match=r"torch 1\.7\.1"):
        store.load(model, retrain=True)


def test_data_that_are_gone_or_changed_are_refused(store, tmp_path):
    file = tmp_path / "keys"
    file.write_bytes(b"123")
    provenance = Provenance(train=TRAIN, data={"path": str(file), "checksum": checksum_of(file)})
    model = store.save(provenance.run(None, allow=[TRAININGS]), strategy="provenance", provenance=provenance)
    file.write_bytes(b"124")
    with pytest.raises(NotReproducible, match=r"data\.checksum"):
        store.load(model, retrain=True)
    file.unlink()
    with pytest.raises(NotReproducible, match=r"data\.path: expected .*keys, found no file"):
        store.load(model, retrain=True)


def test_architecture_code_and_environment_are_recorded_and_shared(store):
    architecture = Architecture(f"{TRAININGS}:network", {"width": 8})
    models = [store.save(trainings.train(None, data=n, seed=0), model=architecture) for n in range(3)]
    infos = [store.info(model) for model in models]
    assert {info.environment for info in infos} == {infos[0].environment}
    assert infos[0].architecture == {"factory": f"{TRAININGS}:network", "args": {"width": 8}}
    assert store.environment(models[0]) == Environment.now()
    assert len([path for path in (store.root / "documents").rglob("*") if path.is_file()]) == 2
    for model in models:
        store.delete(model)
    assert len(store.gc()) == 2


def test_a_base_of_a_provenance_cannot_be_deleted(store):
    base = store.save(trainings.train(None, data=1, seed=0))
    provenance = Provenance(train=TRAIN)
    child = store.save(
        provenance.run(store.load(base), allow=[TRAININGS]), base=base, strategy="provenance", provenance=provenance
    )
    for rebase in (False, True):
        with pytest.raises(ModelInUse, match=child):
            store.delete(base, rebase=rebase)
    store.delete(child)
    store.delete(base)


def test_adaptive_trains_again_only_what_was_probed_and_in_time(store):
    provenance = Provenance(train=TRAIN, seconds=0.5, probed=True)
    state = provenance.run(None, allow=[TRAININGS])
    free = Prices(store=1e9, save=0, recover=0)

    def kind(provenance: Provenance, limit: float | None) -> str:
        model = store.save(state, strategy=Adaptive(free, max_recovery_seconds=limit), provenance=provenance)
        found = store.info(model)
        store.delete(model)
        assert found.provenance == provenance.to_json()
        return str(found.strategy)

    big = {f"x{n}": torch.randn(40_000) for n in range(9)}
    state = state | big
    assert kind(provenance, None) == "provenance"
    assert kind(provenance, 0.4) == "snapshot"
    assert kind(replace(provenance, probed=False), None) == "snapshot"
    assert kind(replace(provenance, seconds=None), None) == "snapshot"


def test_trainings_on_top_of_trainings_are_within_the_limit_together(store):
    recipe = Provenance(train=TRAIN, seconds=1, probed=True)
    adaptive = Adaptive(Prices(store=1e9, save=0, recover=0), max_recovery_seconds=5)
    base, kinds = None, []
    state = recipe.run(None, allow=[TRAININGS])
    for n in range(5):
        state = state | {"x": torch.randn(300_000, generator=torch.Generator().manual_seed(n))}
        base = store.save(state, base=base, strategy=adaptive, provenance=recipe)
        kinds.append(store.info(base).strategy)
    # Three trainings take 3 s, times a margin of 1.5; a fourth would break the limit.
    assert kinds[:4] == ["provenance"] * 3 + ["snapshot"]
    assert kinds[4] == "provenance"


def test_what_is_no_provenance_is_refused(store):
    state = trainings.train(None, data=1, seed=0)
    with pytest.raises(ConfigError, match="provenance"):
        store.save(state, strategy="provenance")
    with pytest.raises(ConfigError, match=r"package\.module:factory"):
        store.save(state, model="network")
    with pytest.raises(TypeError, match="values of JSON"):
        store.save(state, provenance=Provenance(train=TRAIN, args={"steps": (1, 2)}))
    with pytest.raises(ConfigError, match="extra"):
        store.save(state, strategy="provenance", provenance=Provenance(train=TRAIN), extra={"a": 1})
    assert store.list() == []


def test_a_model_is_exported_for_others(store, tmp_path):
    state = trainings.train(None, data=1, seed=0)
    model = store.save(state, model=Architecture(f"{TRAININGS}:network", {"width": 8}))
    inputs = torch.randn(4, 6)
    module = trainings.network().eval()
    module.load_state_dict(state)
    store.export(model, tmp_path / "m.safetensors")
    assert_exact(dict(sorted(load_file(tmp_path / "m.safetensors").items())), dict(sorted(state.items())))
    store.export(model, tmp_path / "m.pt2", inputs=(inputs,))
    assert torch.equal(torch.export.load(tmp_path / "m.pt2").module()(inputs), module(inputs))
    with pytest.raises(ConfigError, match="must end in one of"):
        store.export(model, tmp_path / "m.onnx")
    with pytest.raises(NotAllowed):
        ModelStore(store.root).export(model, tmp_path / "m.pt2", inputs=(inputs,))


def test_extra_state_comes_back_of_the_same_types_and_is_part_of_the_identity(store):
    module = trainings.network()
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.randn(3, 6)).sum().backward()
    optimizer.step()
    extra = {
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
        "numbers": (1, 2.5, float("inf"), None, True, b"x"),
    }
    model = store.save(module.state_dict(), extra=extra)
    assert model != store.save(module.state_dict())
    found = store.load_extra(model)
    assert found["numbers"] == extra["numbers"]
    assert found["rng"].equal(extra["rng"])
    assert_exact(store.load(model), module.state_dict())
    assert [t.name for t in store.info(model).tensors] == list(module.state_dict())
    again = torch.optim.Adam(module.parameters())
    again.load_state_dict(found["optimizer"])
    assert str(again.state_dict()) == str(optimizer.state_dict())
    assert store.load_extra(store.save({"a": torch.ones(1)})) is None
    with pytest.raises(StorageError, match=r"extra\['x'\] is a object, which cannot be stored without pickle"):
        store.save(module.state_dict(), extra={"x": object()})


def test_a_training_that_starts_afresh_needs_nothing_of_the_model_before(store):
    first = Provenance(train=TRAIN, seed=1)
    base = store.save(first.run(None, allow=[TRAININGS]), strategy="provenance", provenance=first)
    recipe = Provenance(train=TRAIN, seed=2, uses_base=False)
    state = recipe.run({"never": torch.ones(1)}, allow=[TRAININGS])
    model = store.save(state, base=base, strategy="provenance", provenance=recipe)
    assert store.tree() == {None: [base], base: [model]}
    assert store.info(model).needs == ()
    store.delete(base)
    assert_exact(store.load(model, retrain=True, environment="require"), state)


def test_other_code_is_refused_or_told(store):
    recipe = Provenance(train=TRAIN, code="of yesterday")
    model = store.save(recipe.run(None, allow=[TRAININGS]), strategy="provenance", provenance=recipe)
    with pytest.raises(NotReproducible, match="code: expected of yesterday, found"):
        store.load(model, retrain=True, environment="require")
    with pytest.warns(UserWarning, match="code of yesterday"):
        store.load(model, retrain=True)
    assert store.load(model, retrain=True, environment="ignore")


def test_a_model_without_weights_is_exported_only_when_it_may_be_trained(store, tmp_path):
    recipe = Provenance(train=TRAIN)
    state = recipe.run(None, allow=[TRAININGS])
    model = store.save(state, strategy="provenance", provenance=recipe)
    with pytest.raises(WeightsNotStored):
        store.export(model, tmp_path / "m.safetensors")
    store.export(model, tmp_path / "m.safetensors", retrain=True)
    assert_exact(dict(sorted(load_file(tmp_path / "m.safetensors").items())), dict(sorted(state.items())))


def test_what_may_not_run_is_refused_before_anything_is_looked_at(store):
    recipe = Provenance(train=TRAIN, code="of yesterday", environment=replace(Environment.now(), torch="1.7.1"))
    model = store.save(recipe.run(None, allow=[TRAININGS]), strategy="provenance", provenance=recipe)
    with pytest.raises(NotAllowed):
        ModelStore(store.root).load(model, retrain=True, environment="require")


def test_what_is_saved_beside_a_state_is_never_left_to_a_training(store):
    recipe = Provenance(train=TRAIN, seconds=1e-9, probed=True)
    state = {**recipe.run(None, allow=[TRAININGS]), "big": torch.randn(300_000)}
    free = Adaptive(Prices(store=1e9, save=0, recover=0))
    assert store.info(store.save(state, strategy=free, provenance=recipe)).strategy == "provenance"
    model = store.save(state, strategy=free, provenance=recipe, extra={"steps": 3})
    assert_exact(store.load(model), state)
    assert store.load_extra(model) == {"steps": 3}


@pytest.mark.parametrize("strategy", ["snapshot", "changed_layers", "delta", Snapshot(compress=True)], ids=str)
def test_weights_that_are_saved_later_are_there(store, strategy):
    recipe = Provenance(train=TRAIN)
    state = recipe.run(None, allow=[TRAININGS])
    base = store.save(trainings.train(None, data=1, seed=0))
    model = store.save(state, base=base, strategy="provenance", provenance=recipe)
    child_of_none = recipe.run(state, allow=[TRAININGS])
    child = store.save(child_of_none, base=model, strategy="provenance", provenance=recipe)
    assert store.save(state, strategy="provenance", provenance=recipe) == model
    assert store.info(model).strategy == "provenance"
    assert store.save(state, base=base, strategy=strategy) == model
    assert_exact(store.load(model), state)
    found = store.info(model)
    assert (found.base, found.provenance) == (base, recipe.to_json())
    assert_exact(store.load(child, retrain=True), child_of_none)
    assert len(list(store.root.glob("??/*"))) == 3
    assert store.verify() == []


def test_a_cycle_of_trainings_ends_with_an_error_whoever_builds_on_it(store):
    leaf = "5" * 64
    recipe = Provenance(train=TRAIN, seconds=1, probed=True)
    models = [model_id({name: leaf}, [name], {}) for name in "ab"]
    for name, model, base in zip("ab", models, reversed(models), strict=True):
        metadata = {"strategy": "provenance", "provenance": recipe.to_json(), "base": base}
        planted(store, pack_of({"about": metadata, "order": [name], "ties": {}, "tensors": {name: ["uint8", [1], leaf]}}), model)
    for model in models:
        with pytest.raises(CorruptFile, match="a cycle of bases"):
            store.load(model, retrain=True)
        with pytest.raises(CorruptFile, match="a cycle of bases"):
            store.save({"c": torch.ones(1)}, base=model, provenance=recipe)
    assert len(store.verify()) == 2


def test_a_base_whose_children_have_no_weights_is_never_deleted_whatever_else_is_rebased(store):
    recipe = Provenance(train=TRAIN)
    first = {"big": torch.randn(40_000), **trainings.train(None, data=1, seed=0)}
    base = store.save(first, strategy=Snapshot(compress=True))
    rebased = store.save({**first, "x": torch.ones(1)}, base=base, strategy="changed_layers")
    kept = store.save(recipe.run(None, allow=[TRAININGS]), base=base, strategy="provenance", provenance=recipe)
    before = {path: path.read_bytes() for path in store.root.glob("??/*")}
    with pytest.raises(ModelInUse, match="these have no weights") as caught:
        store.delete(base, rebase=True)
    assert caught.value.children == [kept]
    with pytest.raises(ModelInUse) as caught:
        store.delete(base)
    assert set(caught.value.children) == {kept, rebased}
    # Refused means that nothing was touched.
    assert {path: path.read_bytes() for path in store.root.glob("??/*")} == before
