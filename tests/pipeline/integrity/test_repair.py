"""Repair: whatever is derived comes back with the same bytes, whatever else says why not, and no launch is stuck."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from fastpath.format.index import BatchIndex
from modyn_dagster.catalog.datasets import get_dataset
from modyn_dagster.ingestion.batches import batch_files
from modyn_dagster.ingestion.deletion.delete import delete_samples
from modyn_dagster.ingestion.deletion.purge import purge_samples
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.keys import key_of, keys_of
from modyn_dagster.selection import TrainingSet
from modyn_dagster.settings import Settings
from tests.examples import examples
from tests.pipeline.integrity.homes import DERIVED, PACKED, files_of, findings, flip, full_world, repaired
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, batch_text

#: Files of the model store may be stored in another form than before, with the same tensors.
AS_BYTES = sorted(set(DERIVED) - {"models", "optimizers"})


@pytest.fixture
def world(settings: Settings, tmp_path: Path) -> Iterator[World]:
    made = full_world(settings, tmp_path / "project")
    yield made
    made.close()


def contents(world: World) -> dict[Path, bytes]:
    return {path: path.read_bytes() for kind in AS_BYTES for path in files_of(world, kind)}


def delete(world: World, dataset: str, ordinal: int, positions: list[int], *, purge: bool = False) -> None:
    with world.platform.transaction() as conn:
        row = get_dataset(conn, dataset)
    keys, place = keys_of(ordinal, np.array(positions)), (world.platform.engine, world.platform.home)
    delete_samples(*place, row, keys)
    if purge:
        purge_samples(*place, world.platform.dataset(dataset), row, keys)


def test_a_sound_home_is_left_alone(world: World) -> None:
    before = {path: path.stat().st_mtime_ns for kind in DERIVED for path in files_of(world, kind)}
    assert repaired(world) == []
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.soak("replays")
def test_everything_derived_comes_back_at_once_with_the_same_bytes(world: World) -> None:
    """Files that others are made from come first."""
    before = contents(world)
    optimizers = files_of(world, "optimizers")
    for number, path in enumerate([*before, *files_of(world, "models"), *optimizers]):
        if number % 2 and path not in optimizers:
            path.unlink()
        else:
            flip(path, path.stat().st_size // 2)
    assert [outcome.reason for outcome in repaired(world) if not outcome.is_repaired] == []
    assert findings(world) == []
    assert contents(world) == before


def test_any_damage_to_any_derived_file_is_found_and_repaired(world: World) -> None:
    before = contents(world)

    @hypothesis_settings(max_examples=examples(12))
    @given(
        st.sampled_from(AS_BYTES), st.integers(0), st.sampled_from(["flip", "cut", "remove"]), st.floats(0, 1, exclude_max=True)
    )
    def check(kind: str, number: int, damage: str, place: float) -> None:
        files = files_of(world, kind)
        path = files[number % len(files)]
        if damage == "remove":
            path.unlink()
        elif damage == "cut":
            os.truncate(path, int(place * len(before[path])))
        else:
            flip(path, int(place * len(before[path])))
        found = [finding for finding in findings(world, kinds=[kind]) if finding.is_fault]
        home = world.platform.home
        # Training sets leave out the padding of Arrow, on which no content depends.
        assert found or (kind == "training-sets" and TrainingSet.open(path).keys().tolist())
        assert {home / finding.path for finding in found} <= {path}
        assert all(outcome.is_repaired for outcome in repaired(world, kinds=[kind]))
        if found:
            assert path.read_bytes() == before[path]
        path.write_bytes(before[path])

    check()


def test_what_cannot_be_made_again_stays_as_it_is_and_says_why_and_which_backup(world: World) -> None:
    delete(world, PACKED, 1, [2, 7], purge=True)
    delete(world, DATASET, 1, [0, 1, 2, 3])
    purged = world.platform.home / "shards" / PACKED / "1.1.bin"
    training_set = files_of(world, "training-sets")[0]
    source = world.folder / "data" / "day_01.csv"
    for path in (purged, training_set, source):
        flip(path, path.stat().st_size // 2)
    damaged = {path: path.read_bytes() for path in (purged, training_set, source)}
    outcomes = {outcome.finding.kind: outcome for outcome in repaired(world)}
    assert {kind for kind, outcome in outcomes.items() if not outcome.is_repaired} == {"shards", "training-sets", "sources"}
    assert {path: path.read_bytes() for path in damaged} == damaged
    assert "purged" in outcomes["shards"].reason
    assert "taken after the purge" in outcomes["shards"].finding.remedy
    assert "samples were deleted since" in outcomes["training-sets"].reason
    assert "a backup of MODYN_HOME/training_sets" in outcomes["training-sets"].finding.remedy
    assert "not derived" in outcomes["sources"].reason
    assert "a backup of the source files" in outcomes["sources"].finding.remedy


@pytest.mark.soak("replays")
def test_an_index_whose_source_changed_is_not_replaced_by_another(world: World) -> None:
    index = world.platform.home / "batches" / DATASET / "1.arrow"
    flip(index, 100)
    flip(world.folder / "data" / "day_01.csv", 100)
    before = index.read_bytes()
    outcomes = {outcome.finding.kind: outcome for outcome in repaired(world)}
    assert not outcomes["indexes"].is_repaired
    assert index.read_bytes() == before


@pytest.mark.soak("replays")
def test_a_damaged_training_set_and_predictions_do_not_fail_the_next_launch(world: World) -> None:
    before, outcome = contents(world), world.outcome(world.run("online", "replay"))
    for kind in ("training-sets", "predictions"):
        for path in files_of(world, kind):
            flip(path, path.stat().st_size // 2)
    world.replay("online")
    world.replay("by_amount")
    assert world.outcome(world.run("online", "replay")) == outcome
    assert contents(world) == before
    assert findings(world) == []


@pytest.mark.soak("replays")
def test_after_a_deletion_a_damaged_file_does_not_fail_the_next_launch_either(world: World) -> None:
    """The training set cannot come back, the predictions come back without the deleted samples."""
    delete(world, DATASET, 2, [5])
    outcome = world.outcome(world.run("online", "replay"))
    training_set = files_of(world, "training-sets")[0]
    predictions = files_of(world, "predictions")
    for path in (training_set, *predictions):
        flip(path, path.stat().st_size // 2)
    assert {outcome.finding.kind for outcome in repaired(world) if not outcome.is_repaired} >= {"predictions"}
    world.replay("online")
    world.replay("by_amount")
    assert world.outcome(world.run("online", "replay"))["models"] == outcome["models"]
    assert [finding for finding in findings(world) if finding.kind == "predictions"] == []


@pytest.mark.soak("replays")
def test_predictions_of_a_model_that_retention_removed_stay_lost_and_stop_nothing(world: World) -> None:
    from modyn_dagster.catalog.results.models import list_models, mark_models

    run = world.run("online", "replay")
    with world.platform.transaction() as conn:
        models = list_models(conn, run.id)
        mark_models(conn, [model.trigger_id for model in models], removed=True)
    for model in models:
        world.platform.model_store.delete(model.hash, rebase=True)
    for path in files_of(world, "predictions"):
        flip(path, path.stat().st_size // 2)
    scores = world.outcome(run)["evaluations"]
    world.replay("online")
    assert world.outcome(run)["evaluations"] == scores
    assert {outcome.finding.owner.partition(",")[0] for outcome in repaired(world, pipeline="online")} == set()


@pytest.mark.soak("replays")
def test_equal_models_repair_each_others_predictions(world: World) -> None:
    """Without predicting: a second run with the same models has the files under names of its own."""
    world.replay("online", name="again")
    own, other = world.run_named("online", ""), world.run_named("online", "again")
    path, twin = (sorted(world.platform.home.glob(f"predictions/{run.id:06d}/*/*.codes"))[0] for run in (own, other))
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(b"damaged")
    for model in files_of(world, "models"):
        model.unlink()
    assert [outcome.is_repaired for outcome in repaired(world, pipeline="online", kinds=["predictions"])] == [True]
    assert path.read_bytes() == twin.read_bytes() == content
    assert path.samefile(twin)


@pytest.mark.soak("replays")
def test_slices_of_one_import_come_back_like_whole_files(world: World) -> None:
    source = world.folder / "data"
    for day in (3, 4):
        (source / f"day_{day:02d}.csv").write_text(batch_text(day))
    spec, root = world.platform.dataset(DATASET), world.platform.project.root_of(DATASET)
    import_history(world.platform.engine, world.platform.home, spec, root, by="count:30")
    slices = [path for path in files_of(world, "indexes") if path.parent.name == DATASET][3:]
    assert len(slices) == 3
    before = {path: path.read_bytes() for path in slices}
    for path in slices:
        path.unlink()
    assert [outcome.is_repaired for outcome in repaired(world, dataset=DATASET)] == [True] * 3
    assert {path: path.read_bytes() for path in slices} == before


@pytest.mark.soak("replays")
def test_an_older_index_comes_back_in_its_own_form(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes of earlier versions have no digests of blocks."""
    (world.folder / "data" / "day_03.csv").write_text(batch_text(3))
    spec, root = world.platform.dataset(DATASET), world.platform.project.root_of(DATASET)
    monkeypatch.setattr(batch_files, "indexed_files", without_blocks(batch_files.indexed_files))
    import_history(world.platform.engine, world.platform.home, spec, root)
    monkeypatch.undo()
    path = world.platform.home / "batches" / DATASET / "3.arrow"
    assert BatchIndex.open(path).block_digests() is None
    before = path.read_bytes()
    flip(path, 100)
    assert [outcome.is_repaired for outcome in repaired(world, dataset=DATASET)] == [True]
    assert path.read_bytes() == before


def without_blocks(indexed_files: Any) -> Any:
    return lambda *arguments: [replace(file, blocks=None) for file in indexed_files(*arguments)]


def test_a_key_of_a_repaired_batch_reads_as_before(world: World) -> None:
    keys = np.array([key_of(1, 3)], np.uint64)
    before = world.platform.view(PACKED).reader.read_blobs(keys)
    (world.platform.home / "shards" / PACKED / "1.bin").unlink()
    (world.platform.home / "batches" / PACKED / "1.arrow").unlink()
    assert all(outcome.is_repaired for outcome in repaired(world, dataset=PACKED))
    assert world.platform.view(PACKED).reader.read_blobs(keys) == before
