"""Allowlist of functions that files name: nothing else is called or imported."""

import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from modyn_dagster.errors import ConfigError, ImportPathError, NotAllowed, NotJson, NotReproducible, StorageError
from modyn_dagster.model_store import Architecture, Environment, ModelStore, Provenance
from modyn_dagster.pipeline.platform import BUILDER
from tests.model_store.states import assert_exact

MODULE = "tests.model_store.allowed"
STATE = {"a": torch.ones(3)}


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "models", allow=[MODULE])


@pytest.mark.parametrize("name", ["run", "imported", "cached", "alias"])
def test_what_an_allowed_module_has_from_elsewhere_does_not_run(store, tmp_path, name):
    with pytest.raises((NotAllowed, ImportPathError), match=f"found '?{MODULE}:{name}"):
        Provenance(train=f"{MODULE}:{name}").run(None, allow=store.allow)
    built = tmp_path / "built"
    model = store.save(STATE, model=Architecture(f"{MODULE}:{name}", {"args": ["touch", str(built)]}))
    with pytest.raises((NotAllowed, ImportPathError)):
        store.export(model, tmp_path / "m.pt", inputs=(torch.ones(1),))
    assert not built.exists()


@pytest.mark.parametrize("train", ["channels_last", "other_alias"])
def test_what_is_defined_there_runs_also_under_another_name(store, train):
    assert list(Provenance(train=f"{MODULE}:{train}").run(None, allow=store.allow)) == ["weight", "tied", "row"]


@pytest.mark.parametrize(
    "allow", [["tests.model_store.allowe"], ["tests.model_store.allowed."], ["test"], [""], [f"{MODULE}:on"]]
)
def test_a_prefix_ends_where_a_name_does(store, allow):
    with pytest.raises(NotAllowed):
        Provenance(train=f"{MODULE}:on_top").run(None, allow=allow)


def test_one_function_may_be_allowed_alone():
    one = [f"{MODULE}:channels_last"]
    assert Provenance(train=one[0]).run(None, allow=one)
    with pytest.raises(NotAllowed):
        Provenance(train=f"{MODULE}:on_top").run({}, allow=one)


@pytest.mark.parametrize("train", [f"{MODULE}:allowed.run", f"{MODULE}:sys.exit", f"{MODULE}:", MODULE, f"{MODULE}:__name__"])
def test_what_is_no_function_of_the_module_is_refused(store, train):
    with pytest.raises(ImportPathError):
        Provenance(train=train).run(None, allow=store.allow)


@pytest.mark.parametrize("function", ["build_module", "empty_network"])
def test_a_file_makes_the_builder_of_the_box_import_nothing(tmp_path, function):
    unwanted = "tests.model_store.imported_by_nobody"
    recorded = {
        "features": [{"name": "x", "kind": "columns", "features": ["a"]}],
        "model": {"name": "custom", "factory": f"{unwanted}:build"},
        "n_outputs": 1,
    }
    args = {"architecture": recorded} | ({"threads": 1, "source": "file"} if function == "empty_network" else {})
    store = ModelStore(tmp_path, allow=[BUILDER])
    model = store.save(STATE, model=Architecture(f"{BUILDER.partition(':')[0]}:{function}", args))
    with pytest.raises((NotAllowed, ConfigError, ValueError, KeyError, TypeError)):
        store.export(model, tmp_path / "m.pt", inputs=(torch.ones(1),))
    if function != "build_module":
        with pytest.raises(NotAllowed):
            store.export(model, tmp_path / "m.pt", inputs=(torch.ones(1),))
    assert unwanted not in sys.modules


def test_a_training_on_top_of_another_gets_its_base_as_if_it_were_read(store):
    first, second = (Provenance(train=f"{MODULE}:{name}", seed=3) for name in ("channels_last", "on_top"))
    state = first.run(None, allow=store.allow)
    base = store.save(state, strategy="provenance", provenance=first)
    found = store.load(base, retrain=True)
    assert_exact(found, state)
    assert all(tensor.is_contiguous() and not tensor.requires_grad and type(tensor) is torch.Tensor for tensor in found.values())
    assert found["weight"].data_ptr() == found["tied"].data_ptr()
    last = second.run(found, allow=store.allow)
    model = store.save(last, base=base, strategy="provenance", provenance=second)
    assert_exact(store.load(model, retrain=True), last)
    store.save(state, strategy="snapshot")
    # With its weights or without them, what trains on top of it does the same.
    assert_exact(store.load(model, retrain=True), last)


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
def test_a_model_is_trained_again_also_in_the_middle_of_an_evaluation(tmp_path, around):
    store = ModelStore(tmp_path, allow=["tests.model_store.trainings"])
    recipe = Provenance(train="tests.model_store.trainings:train")
    state = recipe.run(None, allow=store.allow)
    model = store.save(state, strategy="provenance", provenance=recipe)
    with around():
        assert_exact(store.load(model, retrain=True), state)


def test_a_misspelt_strictness_is_not_taken_for_leniency(store):
    model = store.save(STATE)
    with pytest.raises(ConfigError, match="environment: must be one of require, warn, ignore"):
        store.load(model, environment="required")


DEEP: list[object] = []
for _ in range(100_000):
    DEEP = [DEEP]
ODD = [(1, 2), {1: 2}, {3}, float("nan"), b"x", "\udcff", torch.ones(1), DEEP]


@pytest.mark.parametrize("value", ODD, ids=lambda value: type(value).__name__)
def test_what_json_lacks_is_refused_by_field(store, value):
    for provenance, field in [
        (Provenance(train="a.b:c", args={"x": value}), "args"),
        (Provenance(train="a.b:c", data={"path": value}), "data"),
    ]:
        with pytest.raises(NotJson, match=f"provenance: {field}: must be made of values of JSON") as caught:
            store.save(STATE, provenance=provenance)
        assert caught.value.field == field
    with pytest.raises(NotJson, match="model: args: must be made of values of JSON"):
        store.save(STATE, model=Architecture("a.b:c", {"x": value}))
    assert store.list() == []


@pytest.mark.parametrize("name", ["data", "seed"])
def test_an_argument_that_the_provenance_itself_gives_is_refused(store, name):
    with pytest.raises(ConfigError, match=f"args.{name}: is given by the provenance itself"):
        store.save(STATE, provenance=Provenance(train="a.b:c", args={name: 1}))


def test_odd_extra_state_is_refused_by_its_place(store):
    itself: list[object] = []
    itself.append(itself)
    for value in (np.array(["text"]), np.array([object()]), np.array(["2020-01-01"], "datetime64[s]")):
        with pytest.raises(StorageError, match=r"extra\['k'\] is an array of"):
            store.save(STATE, extra={"k": value})
    for endless, rule in ((itself, "extra is nested too deeply"), (10**5000, "extra cannot be written")):
        with pytest.raises(StorageError, match=rule):
            store.save(STATE, extra={"k": endless})
    assert store.list() == []


@pytest.mark.parametrize(("train", "args", "message"), [("breaks", {}, "ValueError: no"), ("on_top", {"x": 1}, "TypeError: ")])
def test_a_training_that_fails_is_named_and_leaves_the_process_as_it_was(store, train, args, message):
    recipe = Provenance(train=f"{MODULE}:{train}", args=args, environment=replace(Environment.now(), threads=1))
    model = store.save(STATE, strategy="provenance", provenance=recipe)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    before = torch.get_rng_state(), random.getstate(), str(np.random.get_state())
    try:
        with pytest.raises(NotReproducible, match=f"train: expected {recipe.train} to end, found {message}"):
            store.load(model, retrain=True)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (random.getstate(), str(np.random.get_state())) == before[1:]
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_training_may_train_its_own_base_again(store):
    inner = Provenance(train=f"{MODULE}:channels_last", seed=3)
    state = inner.run(None, allow=store.allow)
    base = store.save(state, strategy="provenance", provenance=inner)
    outer = Provenance(train=f"{MODULE}:nested", args={"root": str(store.root), "model": base}, seed=4)
    found = outer.run(None, allow=store.allow)
    assert_exact(store.load(store.save(found, strategy="provenance", provenance=outer), retrain=True), found)
