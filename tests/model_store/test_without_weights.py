"""Models stored without weights: saving adds them on request, and a missing base is reported."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from modyn_dagster.errors import CorruptFile, ModelInUse, UnknownModel
from modyn_dagster.model_store import (
    Adaptive,
    Architecture,
    ChangedLayers,
    Delta,
    ModelId,
    ModelStore,
    Prices,
    Provenance,
    Snapshot,
)
from modyn_dagster.model_store.strategies.settings import Strategy
from tests.model_store import trainings
from tests.model_store.states import assert_exact

TRAININGS = "tests.model_store.trainings"
RECIPE = Provenance(train=f"{TRAININGS}:train", data=3, seed=1, args={"steps": 2}, seconds=1, probed=True)
#: So that bytes alone decide, and a record is smaller than any weights.
DEAR = Prices(store=1e9, save=0, recover=0)


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "models", allow=[TRAININGS])


@pytest.fixture
def state() -> Mapping[str, Tensor]:
    return RECIPE.run(None, allow=[TRAININGS])


def large(state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """With more bytes than a record has."""
    return {**state, "x": torch.arange(40_000).float()}


@pytest.mark.parametrize("strategy", [Snapshot(), Snapshot(compress=True), ChangedLayers(), Delta(), Adaptive()], ids=str)
def test_a_model_that_is_saved_with_weights_has_them_afterwards(
    store: ModelStore, state: Mapping[str, Tensor], strategy: Strategy
) -> None:
    architecture = Architecture(f"{TRAININGS}:network", {"width": 8})
    model = store.save(state, strategy="provenance", provenance=RECIPE, model=architecture)
    child = store.save(RECIPE.run(state, allow=[TRAININGS]), base=model, strategy="provenance", provenance=RECIPE)
    other = store.save({name: tensor + 1 for name, tensor in state.items()})
    assert store.save(state, base=other, strategy=strategy) == model
    found = store.info(model)
    assert_exact(store.load(model), state)
    assert (found.strategy, found.base, found.needs) == ("snapshot", None, ())
    assert found.reason.endswith("it was there without weights")
    # How it was trained is still known, and what was trained from it still comes back.
    assert (found.provenance, found.architecture) == (RECIPE.to_json(), architecture.to_json())
    assert_exact(store.load(child, retrain=True), RECIPE.run(state, allow=[TRAININGS]))
    store.save(state, strategy="provenance", provenance=RECIPE)
    assert_exact(store.load(model), state)
    assert store.verify() == []


def test_adaptive_adds_weights_where_its_limit_asks_for_them(store: ModelStore, state: Mapping[str, Tensor]) -> None:
    state = large(state)
    first = store.save(state, strategy=Adaptive(DEAR), provenance=RECIPE)
    second = store.save({**state, "x": state["x"] + 1}, base=first, strategy=Adaptive(DEAR), provenance=RECIPE)
    assert [store.info(each).strategy for each in (first, second)] == ["provenance"] * 2

    def again(limit: float) -> list[str]:
        for each, shift in ((first, 0), (second, 1)):
            assert store.save({**state, "x": state["x"] + shift}, strategy=Adaptive(DEAR, limit)) == each
        return [store.info(each).strategy for each in (first, second)]

    # One training takes 1 s and two take 2 s, times a margin of 1.5.
    assert again(3.5) == ["provenance", "provenance"]
    assert again(2.5) == ["provenance", "snapshot"]
    assert "above 2.5 s: provenance" in store.info(second).reason
    assert again(0.5) == ["snapshot", "snapshot"]


def test_what_has_extra_state_is_never_left_to_a_training(store: ModelStore, state: Mapping[str, Tensor]) -> None:
    state = large(state)
    assert store.info(store.save(state, strategy=Adaptive(DEAR), provenance=RECIPE)).strategy == "provenance"
    model = store.save(state, strategy=Adaptive(DEAR), provenance=RECIPE, extra={"epoch": 3})
    assert store.info(model).strategy == "snapshot"
    assert_exact(store.load(model), state)
    assert store.load_extra(model) == {"epoch": 3}


def lost_base(store: ModelStore, state: Mapping[str, Tensor]) -> tuple[ModelId, ModelId]:
    base = store.save(trainings.network().state_dict())
    model = store.save(state, base=base, strategy="provenance", provenance=RECIPE)
    store.info(base).path.unlink()
    return base, model


def test_a_start_that_was_lost_is_damage_of_the_model_and_the_others_are_read(
    store: ModelStore, state: Mapping[str, Tensor]
) -> None:
    base, model = lost_base(store, state)
    store.save({"a": torch.ones(3)})
    told: list[tuple[int, int]] = []
    [damage] = store.verify(progress=lambda done, of: told.append((done, of)))
    assert told == [(1, 2), (2, 2)]
    assert damage.path == str(store.info(model).path)
    assert f"expected model {base}, which its training starts from, found no model of that id" in str(damage)
    with pytest.raises(CorruptFile, match=f"model {base}"):
        store.load(model, retrain=True)
    # Saved once more, it needs it no longer.
    assert store.save(state) == model
    assert_exact(store.load(model), state)
    with pytest.raises(UnknownModel):
        store.verify(base)


def test_what_is_deleted_while_all_is_verified_is_no_damage(store: ModelStore) -> None:
    models = sorted(store.save({"a": torch.tensor(n)}) for n in range(3))

    def progress(done: int, of: int) -> None:
        if done == 1:
            store.delete(models[1])

    assert store.verify(progress=progress) == []
    assert store.list() == [models[0], models[2]]
    with pytest.raises(UnknownModel):
        store.verify(models[1])


def test_who_may_not_delete_a_start_is_told_what_to_do(store: ModelStore) -> None:
    base = store.save(trainings.network().state_dict())
    state = RECIPE.run(store.load(base), allow=[TRAININGS])
    model = store.save(state, base=base, strategy="provenance", provenance=RECIPE)
    with pytest.raises(ModelInUse, match="load them with retrain=True and save them by another strategy first"):
        store.delete(base, rebase=True)
    assert store.save(store.load(model, retrain=True), strategy="snapshot") == model
    store.delete(base, rebase=True)
    assert_exact(store.load(model), state)
