"""Adaptive in a pipeline that lets it train again: chosen where it is cheapest, never above the limit, and exact either way."""

from collections.abc import Callable
from typing import Any

import pytest

from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.errors import WeightsNotStored
from modyn_dagster.model_store import ModelInfo, ModelStore
from modyn_dagster.model_store.format.record import Record
from modyn_dagster.pipeline.stages.model.model_saving import stored_exactly
from modyn_dagster.pipeline.weights import on_platform
from tests.pipeline.world import World
from tests.projects.tiny import USER_CODE, Content, amount

MakeWorld = Callable[..., World]

# So dear that bytes alone decide: those of the record of a training are fewer than those of 17,000 weights.
BYTES: dict[str, Any] = {"prices": {"store": 1e9, "save": 0, "recover": 0}, "retrain": True}
#: Every training starts from the model before.
CHAINED = {"use_previous_model": True}
DAYS = range(5)


def pipeline(name: str, store: dict[str, Any], **training: Any) -> Content:
    content = amount(name, every=40, model_store=store)
    content["training"] |= {"model": {"name": "mlp", "hidden": [128, 128]}, "epochs": 1} | training
    return content


def replayed(world: World, name: str) -> tuple[ModelStore, list[ModelRow], list[ModelInfo]]:
    world.replay(name)
    store = world.platform.models_of(world.platform.pipeline(name))
    with world.platform.transaction() as conn:
        models = list_models(conn, world.run(name, "replay").id)
    assert len(models) == len(DAYS)
    return store, models, [store.info(model.hash) for model in models]


def forget(world: World) -> None:
    for model in world.platform.weight_cache.list():
        world.platform.weight_cache.delete(model)


def seconds_of(info: ModelInfo) -> float:
    assert info.provenance is not None
    return float(info.provenance["seconds"])


def come_back(world: World, store: ModelStore, infos: list[ModelInfo]) -> None:
    """Every model, by training where there is nothing to read; and their bits are those of the hash."""
    forget(world)
    for info in infos:
        if info.strategy == "provenance":
            with pytest.raises(WeightsNotStored):
                store.load(info.id)
        with on_platform(world.platform):
            state = store.load(info.id, retrain=True, environment="require")
        assert Record.of(state).id == info.id


@pytest.mark.soak("replays")
@pytest.mark.parametrize("training", [{}, CHAINED], ids=["afresh", "from the one before"])
def test_training_again_is_chosen_where_it_is_cheapest_and_every_model_comes_back(
    world_of: MakeWorld, training: dict[str, Any]
) -> None:
    world = world_of(pipeline("by_amount", BYTES, **training), pipeline("plain", {"strategy": "snapshot"}, **training))
    world.deliver(DAYS)
    store, models, infos = replayed(world, "by_amount")
    assert [info.strategy for info in infos] == ["provenance"] * len(DAYS)
    for info in infos:
        assert info.reason.startswith("adaptive, cheapest first: provenance 0.00819 MB")
        assert "snapshot 0.0" in info.reason
        assert info.n_bytes < info.full_bytes / 5
    assert [stored_exactly(store, model).passed for model in models] == [True] * len(DAYS)
    come_back(world, store, infos)
    # They are the ones that would have been trained anyway, and whoever stores them with weights has these.
    _, others, stored = replayed(world, "plain")
    assert [model.hash for model in others] == [model.hash for model in models]
    assert {info.strategy for info in stored} == {"snapshot"}
    assert [Record.of(store.load(model.hash)).id for model in others] == [model.hash for model in models]


def test_a_limit_on_recovery_rules_it_out_and_the_reason_says_so(world_of: MakeWorld) -> None:
    world = world_of(pipeline("by_amount", BYTES | {"max_recovery_seconds": 0.01}))
    world.deliver(DAYS)
    store, _, infos = replayed(world, "by_amount")
    assert "provenance" not in {info.strategy for info in infos}
    for info in infos:
        _, _, above = info.reason.partition("; above 0.01 s: ")
        assert "provenance 0.00819 MB, 0.005 s to save, " in above, info.reason
        assert info.provenance is not None, "how it was trained is recorded by every strategy"
        assert Record.of(store.load(info.id)).id == info.id


@pytest.mark.soak("replays")
def test_trainings_that_follow_each_other_stay_below_the_limit_together(
    world_of: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(USER_CODE))
    # Of trainings that take 0.2 s and a little each, two fit in, times the margin, and three never do.
    limit = 1.5 * 0.59
    model = {"factory": "tiny_models:slow", "config": {"seconds": 0.2}}
    world = world_of(pipeline("by_amount", BYTES | {"max_recovery_seconds": limit}, **CHAINED, model=model))
    world.deliver(DAYS)
    store, _, infos = replayed(world, "by_amount")
    before = 0.0
    for info in infos:
        together = before + seconds_of(info)
        if info.strategy == "provenance":
            assert 1.5 * together <= limit
            before = together
        else:
            # Hashing the weights is all that is added to the seconds of the trainings.
            assert 1.5 * together > 0.99 * limit
            assert "above" in info.reason
            before = 0.0
    assert {"provenance"} < {info.strategy for info in infos}
    come_back(world, store, infos)
