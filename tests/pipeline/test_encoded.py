"""Pipelines over columns of text and missing numbers: live as replayed, whatever stores the models, and in ranks."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.pipeline.weights import weights_of
from modyn_dagster.training.models.layout import Layout
from tests.pipeline.measuring import drift
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, Content, amount, batch_text, drop

MakeWorld = Callable[..., World]
#: From day to day there is a new city, and some numbers are missing.
CITIES = ["rome", "oslo", "köln", "", "aden", "lima"]
ENCODED: dict[str, Any] = {
    "features": ["x", {"pattern": "c*"}],
    "encode": {"city": {"kind": "one_hot", "max_values": 5, "beyond": "unknown"}, "c2": {"kind": "hash", "buckets": 3}},
    "impute": {"x": {"by": "median", "indicator": True}},
}
GROWING = {"use_previous_model": True, "carry_optimizer": True}
STORES = ("adaptive", "snapshot", "changed_layers", "delta", "provenance")


def deliver(world: World, days: int = 4) -> None:
    for day in range(days):
        lines = []
        for i, row in enumerate(batch_text(day).splitlines()[1:]):
            time, x, _, label = row.split(",")
            lines.append(f"{time},{'' if i % 6 == 0 else x},{CITIES[(i + int(label)) % (day + 2)]},k{i % 4},{label}")
        drop(world.folder, f"day_{day}", "\n".join(["time,x,city,c2,label", *lines, ""]))
    spec = world.platform.project.datasets[DATASET]
    import_history(world.platform.engine, world.platform.home, spec, world.platform.project.root_of(DATASET))


def pipeline(**training: Any) -> Content:
    content = amount(every=40)
    content["training"] |= ENCODED | training
    return content


def models(world: World, mode: str, name: str = "by_amount") -> list[ModelRow]:
    with world.platform.transaction() as conn:
        return list_models(conn, world.run(name, mode).id)


def values_of(world: World, name: str, model: ModelRow) -> list[str]:
    """Vocabulary of the column ``city``, as it is stored."""
    for each in world.platform.weight_cache.list():
        world.platform.weight_cache.delete(each)
    weights = weights_of(world.platform, world.platform.pipeline(name), model.hash)
    text, offsets = (weights[f"encode.1.{part}"].numpy() for part in ("values", "offsets"))
    return [text[start:stop].tobytes().decode() for start, stop in pairwise(offsets.tolist())]


@pytest.mark.soak("replays")
@pytest.mark.parametrize("store", STORES)
def test_vocabularies_grow_alike_live_and_replayed_in_every_store(world_of: MakeWorld, store: str) -> None:
    world = world_of(pipeline(**GROWING) | {"model_store": {"strategy": store}})
    deliver(world)
    world.live_until_idle("by_amount")
    world.replay("by_amount")
    assert [row.hash for row in models(world, "live")] == [row.hash for row in models(world, "replay")]
    found = models(world, "live")
    sizes = [Layout.from_json(row.architecture["features"]).encodings[1].n_values for row in found]
    assert sizes == [2, 3, 4, 5]
    # Those of the first day, then one more each day.
    assert values_of(world, "by_amount", found[-1]) == ["oslo", "rome", "köln", "", "aden"]


def test_drift_of_columns_sees_them_as_the_model_does(world_of: MakeWorld) -> None:
    drifting = drift("by_drift", of="columns", every=20, decision={"rule": "threshold", "value": 0.0})
    drifting["training"] |= ENCODED | {"use_previous_model": True}
    world = world_of(drifting | {"model_store": {"strategy": "delta"}})
    deliver(world, 2)
    world.replay("by_drift")
    found = models(world, "replay", "by_drift")
    assert len(found) >= 2
    assert {"oslo", "rome", "köln"} == set(values_of(world, "by_drift", found[-1]))


def embedded(**training: Any) -> Content:
    """A pipeline whose cities have vectors that are learned."""
    encode = ENCODED["encode"] | {"city": {"kind": "embedding", "dimension": 3, "max_values": 5, "beyond": "unknown"}}
    return pipeline(encode=encode, **training)


@pytest.mark.process
@pytest.mark.soak("distributed")
@pytest.mark.parametrize("strategy", ["replicated", "fsdp"])
@pytest.mark.parametrize("content", [pipeline, embedded], ids=["one_hot", "embedding"])
def test_ranks_fit_the_same_encoders(world_of: MakeWorld, content: Callable[..., Content], strategy: str) -> None:
    world = world_of(content(ranks=2, epochs=2, batch_size=10, strategy=strategy, **GROWING))
    deliver(world, 2)
    world.live_until_idle("by_amount")
    world.replay("by_amount")
    assert [row.hash for row in models(world, "live")] == [row.hash for row in models(world, "replay")]
