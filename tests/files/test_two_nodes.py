"""Two nodes with one catalog and one store, and a home each: what one writes, the other reads, byte for byte."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from modyn_dagster.catalog.datasets import get_dataset
from modyn_dagster.files.mounting import files_at
from modyn_dagster.ingestion.deletion.delete import delete_samples, replaced_files
from modyn_dagster.ingestion.deletion.purge import purge_samples
from modyn_dagster.keys import keys_of
from modyn_dagster.pipeline.operate.disk_usage import disk_usage
from modyn_dagster.pipeline.operate.removal.completion import complete
from modyn_dagster.pipeline.operate.removal.datasets import commit_dataset_removal, plan_dataset_removal
from modyn_dagster.pipeline.operate.removal.pipelines import commit_pipeline_removal, plan_pipeline_removal
from modyn_dagster.pipeline.operate.retention import apply_retention
from modyn_dagster.settings import Settings
from tests.pipeline.integrity.homes import PACKED, findings, full_world, repaired
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, write_pipeline

Node = Callable[..., World]


@pytest.fixture
def node(settings: Settings, tmp_path: Path) -> Iterator[Node]:
    """Makes nodes of one project by name; the first one fills the store with files of every kind."""
    made: list[World] = []

    def make(name: str, cache_size: int = 10**9) -> World:
        files = f"file://{tmp_path}/store"
        own = replace(settings, home=tmp_path / name, files=files, cache_size=cache_size)
        folder = tmp_path / "project"
        made.append(World(folder, replace(own, project=folder)) if folder.exists() else full_world(own, folder))
        return made[-1]

    yield make
    for world in made:
        world.close()


def objects(world: World) -> dict[str, bytes]:
    """Content of every file but those of models, as a node reads it: through its copies."""
    home, found = world.platform.home, {}
    for file in files_at(home).below(home):
        if file.path.is_relative_to(home / "models"):
            continue
        with files_at(home).using(file.path):
            found[str(file.path.relative_to(home))] = file.path.read_bytes()
    return found


def kinds(names: object) -> set[str]:
    return {str(name).partition("/")[0] for name in names}  # type: ignore[attr-defined]  # any collection


def test_what_one_node_writes_another_reads_and_replays_to_the_same_bits(node: Node, tmp_path: Path) -> None:
    ann = node("ann")
    assert kinds(objects(ann)) == {"batches", "shards", "training_sets", "predictions", "optimizers"}
    assert not any((tmp_path / "ann" / kind).exists() for kind in ("batches", "shards", "models", "predictions"))
    bob = node("bob")
    assert objects(bob) == objects(ann)
    assert findings(bob) == []
    names = ("by_amount", "online")
    for name in names:
        ann.live_until_idle(name)
        bob.replay(name, name="again")
    for name in names:
        first = ann.outcome(bob.run_named(name, ""))
        assert bob.outcome(bob.run_named(name, "again")) == first
        live = bob.outcome(bob.run(name, "live"))
        assert {kind: live[kind] for kind in ("training_sets", "models")} == {
            kind: first[kind] for kind in ("training_sets", "models")
        }
    assert findings(ann) == []


@pytest.mark.soak("distributed")
def test_a_node_whose_cache_is_far_too_small_or_removed_gives_the_same_bits(node: Node, tmp_path: Path) -> None:
    ann = node("ann")
    small = node("small", cache_size=1)
    small.replay("by_amount", name="small")
    shutil.rmtree(tmp_path / "ann" / "cache")
    ann.replay("by_amount", name="removed")
    first = ann.outcome(ann.run_named("by_amount", ""))
    assert ann.outcome(ann.run_named("by_amount", "small")) == ann.outcome(ann.run_named("by_amount", "removed")) == first


@pytest.mark.soak("distributed")
def test_damage_in_the_store_is_found_and_repaired_for_all_nodes(node: Node, tmp_path: Path) -> None:
    ann, bob = node("ann"), node("bob")
    before = objects(bob)
    for path in sorted((tmp_path / "store").glob("*/*/*")):
        if path.is_file() and not path.is_relative_to(tmp_path / "store" / "models"):
            path.write_bytes(path.read_bytes()[::-1])
    found = findings(ann)
    assert {finding.kind for finding in found} >= {"indexes", "training-sets"}
    assert {finding.state for finding in found if finding.kind != "sources"} == {"damaged"}
    left = [outcome.finding.line for outcome in repaired(ann) if not outcome.is_repaired]
    assert left == []
    bob.settings = replace(bob.settings, home=tmp_path / "carl")
    bob.reload()
    after = objects(bob)
    assert {name: content for name, content in after.items() if not name.startswith("optimizers/")} == {
        name: content for name, content in before.items() if not name.startswith("optimizers/")
    }


@pytest.mark.soak("laws-data")
def test_deletions_and_purges_on_one_node_count_on_the_other(node: Node) -> None:
    ann, bob = node("ann"), node("bob")
    bob.platform.view(PACKED).reader.read(keys_of(0, np.array([1, 2])))
    with ann.platform.transaction() as conn:
        row = get_dataset(conn, PACKED)
    keys, place = keys_of(0, np.array([1, 2])), (ann.platform.engine, ann.platform.home)
    delete_samples(*place, row, keys)
    assert bob.platform.view(PACKED).deleted.among(keys).all()
    purge_samples(bob.platform.engine, bob.platform.home, bob.platform.dataset(PACKED), row, keys)
    assert not (bob.platform.home / "shards/packed/0.bin").exists()
    assert replaced_files(*place, row) == []
    assert "shards/packed/0.1.bin" in objects(ann)
    assert "shards/packed/0.bin" not in objects(ann)
    assert len(ann.platform.view(PACKED).reader.read(keys_of(0, np.array([3]))).times) == 1
    assert findings(ann) == []


@pytest.mark.soak("distributed")
def test_retention_and_removals_empty_the_store(node: Node, tmp_path: Path) -> None:
    ann = node("ann")
    write_pipeline(ann.folder, {**_content(ann, "online"), "retention": {"training_sets": 1, "predictions": 1}})
    ann.reload()
    removed = apply_retention(ann.platform)
    assert removed.training_sets > 0
    assert removed.predictions > 0
    assert removed.n_bytes > 0
    kinds_of_files = {part.kind for part in disk_usage(ann.platform).parts}
    assert kinds_of_files >= {"indexes", "shards", "training sets", "models", "copies"}
    for name in ("by_amount", "online"):
        plan = plan_pipeline_removal(ann.platform, name)
        assert plan.n_bytes(ann.platform.place_of) > 0
        commit_pipeline_removal(ann.platform, plan)
        assert complete(ann.platform, "pipeline", name, lambda _: iter(())) == []
    for name in (DATASET, PACKED):
        commit_dataset_removal(ann.platform, plan_dataset_removal(ann.platform, name))
        assert complete(ann.platform, "dataset", name, lambda _: iter(())) == []
    store = tmp_path / "store"
    left = [path for path in store.rglob("*") if path.is_file() and not path.is_relative_to(store / "models")]
    assert left == []
    assert list((store / "models").glob("*/*.safetensors")) == []


def _content(world: World, name: str) -> dict[str, object]:
    import yaml

    content: dict[str, object] = yaml.safe_load((world.folder / "pipelines" / f"{name}.yaml").read_text())
    return content
