"""Places of deleted samples in the document of a request: indexes, shards and label files, with their checksums."""

from collections.abc import Sequence

import numpy as np
import pytest

from modyn_dagster.catalog.datasets import get_dataset
from modyn_dagster.keys import key_of
from modyn_dagster.pipeline.operate.deletion.document import DeletionDocument, FileChange
from modyn_dagster.pipeline.operate.deletion.execute import begin_request, execute_request
from modyn_dagster.pipeline.operate.deletion.plan import plan_request
from modyn_dagster.values.digest import checksum_of
from tests.pipeline.deleting import execute, plan, shown, wish
from tests.pipeline.integrity.homes import PACKED, add_packed, flip
from tests.pipeline.late_labels import add_labels, arrive_later, at_once
from tests.pipeline.world import World
from tests.projects.tiny import amount

KEYS = [key_of(1, position) for position in (0, 3, 39)]


@pytest.fixture
def labelled(world_of) -> World:
    """Three batches that are read in place, each with a label file of its own."""
    world: World = world_of(amount())
    world.deliver(range(3))
    labels = at_once(world)
    arrive_later(world)
    add_labels(world, labels)
    return world


def label_path(world: World) -> str:
    [path] = [file.path for file in plan(world, KEYS).files if file.kind == "labels"]
    return path


def places(files: Sequence[FileChange]) -> list[tuple[str, str, int | None]]:
    return [(file.kind, file.path, file.n_samples) for file in files if file.kind in ("index", "shard", "labels")]


def test_a_purge_replaces_index_and_label_file_of_the_samples_and_a_deletion_neither(labelled: World) -> None:
    home, labels = labelled.platform.home, label_path(labelled)
    kept = execute(labelled, KEYS[:1]).files
    assert places(kept) == [("index", "batches/tiny/1.arrow", 1), ("labels", labels, 1)]
    assert all(file.before == file.after == checksum_of(home / file.path) for file in kept)
    files = execute(labelled, KEYS, purge=True).files
    gone, new = ([file for file in files if getattr(file, end) is None] for end in ("after", "before"))
    assert places(gone) == [("index", "batches/tiny/1.arrow", 3), ("labels", labels, 3)]
    assert [(home / file.path).exists() for file in gone] == [False, False]
    assert places(new) == [("index", "batches/tiny/1.1.arrow", 3)]


def test_a_plan_is_made_where_an_index_and_a_label_file_are_damaged(labelled: World) -> None:
    labels = label_path(labelled)
    flip(labelled.platform.home / "batches/tiny/1.arrow", 700)
    flip(labelled.platform.home / labels, 700)
    assert places(plan(labelled, KEYS).files) == [("index", "batches/tiny/1.arrow", 3), ("labels", labels, None)]


def test_a_shard_is_a_place_with_its_checksums_before_and_after_a_purge(world_of) -> None:
    world = world_of(amount())
    add_packed(world, 2)
    platform, keys = world.platform, np.array(KEYS, np.uint64)
    with platform.transaction() as conn:
        dataset = get_dataset(conn, PACKED)
    planned = plan_request(platform, dataset, keys, wish(purge=True))
    assert places(planned.files) == [("index", f"batches/{PACKED}/1.arrow", 3), ("shard", f"shards/{PACKED}/1.bin", 3)]
    assert all(file.before == file.after == checksum_of(platform.home / file.path) for file in planned.files)
    request = begin_request(platform, dataset, keys, planned)
    files = DeletionDocument.model_validate(execute_request(platform, request.id, shown).document).files
    assert [(file.path, file.after) for file in files[:2]] == [(file.path, None) for file in planned.files]
    assert places(files[2:]) == [("index", f"batches/{PACKED}/1.1.arrow", 3), ("shard", f"shards/{PACKED}/1.1.bin", 3)]
    assert all(file.after == checksum_of(platform.home / file.path) for file in files[2:])
