"""The parent and the lineage that a model shows: of its own run, after replays and changed specs, however long it gets."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import fsspec
import pytest
import torch

from modyn_dagster.assets.dagster_runs import log_counts
from modyn_dagster.assets.jobs import collect_garbage
from modyn_dagster.assets.metadata.models import stored_metadata
from modyn_dagster.catalog.results.models import find_model
from modyn_dagster.model_store import ModelStore
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.reporting.model_tables import lineage_lines, model_line, tree_lines
from modyn_dagster.resources.model_store import ModelStoreResource
from modyn_dagster.resources.platform import platform_of
from modyn_dagster.settings import Settings
from tests.pipeline.world import World, make_world
from tests.projects.tiny import amount, write_pipeline


@pytest.fixture
def world(settings: Settings, tmp_path: Path) -> Iterator[World]:
    made = make_world(settings, tmp_path / "project", [amount(every=40), amount("others", every=40)])
    yield made
    made.close()


def shown(world: World, pipeline: str, run_id: int) -> dict[str, dict[str, Any]]:
    """Metadata shown of each model of a run, by its partition."""
    found = {}
    for trigger in world.triggers(run_id, "trained"):
        context = context_of(world.platform, pipeline, trigger.partition_key)
        with world.platform.transaction() as conn:
            row = find_model(conn, trigger.id)
        assert row is not None
        found[trigger.partition_key] = stored_metadata(context, row, dg.AssetKey([pipeline, "model"])) | {"hash": row.hash}
    return found


def parents(found: dict[str, dict[str, Any]]) -> list[str | None]:
    urls = [metadata.get("parent") for metadata in found.values()]
    return [None if url is None else str(url.value) for url in urls]


@pytest.mark.soak("screens")
def test_a_parent_is_that_of_the_same_run_though_others_trained_it_too(world: World) -> None:
    world.deliver(range(2))
    world.live_until_idle("by_amount")
    for name in ("by_amount", "others"):
        world.replay(name)
    runs = [("by_amount", world.run("by_amount", "live")), ("by_amount", world.run("by_amount", "replay"))]
    runs += [("others", world.run("others", "replay"))]
    hashes = []
    for pipeline, run in runs:
        found = shown(world, pipeline, run.id)
        expected = [f"/assets/{pipeline}/model?partition={key}" for key in found][:-1]
        assert parents(found) == [None, *expected]
        hashes.append([metadata["hash"] for metadata in found.values()])
        assert [metadata["parent_model"] for metadata in found.values()] == ["none", *hashes[-1][:-1]]
    assert hashes[0] == hashes[1] == hashes[2]


def test_the_first_model_after_a_changed_spec_links_to_the_last_one_before(world: World) -> None:
    world.deliver(range(2))
    world.live_until_idle("by_amount")
    before = world.run("by_amount", "live")
    write_pipeline(world.folder, amount(every=40, seed=8))
    world.reload()
    world.deliver([2])
    world.live_until_idle("by_amount")
    after = world.run("by_amount", "live")
    assert after.id != before.id
    last = list(shown(world, "by_amount", before.id))[-1]
    assert parents(shown(world, "by_amount", after.id)) == [f"/assets/by_amount/model?partition={last}"]


def test_a_lineage_of_fifty_models_stays_readable(tmp_path: Path) -> None:
    store, models = ModelStore(tmp_path), list[str]()
    for n in range(50):
        models.append(store.save({"a": torch.full((300,), n)}, base=models[-1] if models else None))
    lines = lineage_lines(store, models[-1])
    assert lines[0].startswith("… older ones: `modyn-dagster model tree`")
    assert [line[:12] for line in lines[1:]] == [model[:12] for model in models[-10:]]
    assert not lineage_lines(store, models[9])[0].startswith("…")
    assert lineage_lines(store, models[0]) == [model_line(store.info(models[0]))]
    whole = list(tree_lines(store.tree(), lambda model: model_line(store.info(model))))
    assert [line[:12] for line in whole] == [model[:12] for model in models]
    assert max(map(len, whole)) < 60
    # Three more trees: one of two models, two that are alone.
    base = store.save({"b": torch.ones(1)})
    child = store.save({"b": torch.zeros(1)}, base=base)
    for n in range(2):
        store.save({"c": torch.tensor(n)})
    trees = [part.splitlines() for part in "\n".join(tree_lines(store.tree(), lambda model: model)).split("\n\n")]
    assert models in trees
    assert [base, child] in trees
    assert sorted(model for tree in trees for model in tree) == store.list()


def test_cleaning_goes_on_after_a_store_that_fails_and_says_what_to_do(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pipeline(world.folder, amount("others", every=40, model_store={"root": "memory://models/unreachable"}))
    platform_of.cache_clear()
    store = ModelStore(world.platform.home / "models")
    store.save({"a": torch.ones(1)})
    # Of killed writers, of a model and of weights that are kept.
    lefts = [root / "00" / ".killed.tmp" for root in (store.root, world.platform.weight_cache.root)]
    for left in lefts:
        left.parent.mkdir(parents=True)
        left.write_text("half")
    ModelStore("memory://models/unreachable").save({"a": torch.ones(1)})

    def refused(*args: object, **kwargs: object) -> None:
        raise PermissionError("access denied")

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "find", refused)
    resource = ModelStoreResource(settings=world.settings)
    with dg.build_op_context(resources={"modyn_model_store": resource}) as context, pytest.raises(dg.Failure) as caught:
        collect_garbage(context)
    text = str(caught.value.description)
    assert text.startswith("1 of 3 model stores could not be cleaned up. memory://models/unreachable: ")
    assert "access denied" in text
    assert "launch the job again" in text
    assert not any(left.exists() for left in lefts)
    platform_of(world.settings).close()
    platform_of.cache_clear()


def test_a_long_cleaning_says_how_far_it_is() -> None:
    said: list[str] = []
    moments = iter([0.0, 4.0, 10.0, 15.0, 21.0])
    report = log_counts(said.append, "models looked at", clock=lambda: next(moments))
    for done in range(1, 5):
        report(done, 4)
    assert said == ["models looked at: 2 of 4", "models looked at: 4 of 4"]
