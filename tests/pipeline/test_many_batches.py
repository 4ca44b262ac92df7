"""Datasets of many batches: readers keep few of them open, stages look at the batches they need, and results stay the same."""

import numpy as np
import pytest

from modyn_dagster.data import shared_data
from modyn_dagster.keys import KeyRange, key_of, keys_of
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, amount

#: Batches that a reader keeps open here.
FEW = 3
BATCHES = 12


@pytest.fixture
def world(world_of, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(shared_data, "MOST_OPEN", FEW)
    world: World = world_of(amount(every=40))
    world.deliver(range(BATCHES))
    return world


def samples_of(ordinal: int) -> np.ndarray:
    return keys_of(ordinal, np.arange(3))


def test_a_reader_is_replaced_once_it_has_many_batches_open_and_reads_the_same(world: World):
    view, whole = world.platform.view(DATASET), world.platform.view(DATASET).reader
    for ordinal in [*range(BATCHES), 0, 5]:
        keys = samples_of(ordinal)
        found, expected = view.reader.read(keys), whole.read(keys)
        assert (found.times == expected.times).all()
        assert all((found.columns[name] == column).all() for name, column in expected.columns.items())
        assert view.reader.store.n_opened <= FEW + 1
    assert whole.store.n_opened == BATCHES


def test_requests_for_more_batches_than_that_keep_their_reader(world: World):
    view, keys = world.platform.view(DATASET), np.concatenate([samples_of(ordinal) for ordinal in range(BATCHES)])
    reader = view.reader
    reader.read(keys)
    assert all(view.reader is reader for _ in range(9))


def test_a_resident_reader_keeps_its_copies(world: World):
    view = world.platform.view(DATASET)
    reader = view.reader
    reader.resident.read(samples_of(0))
    for ordinal in range(BATCHES):
        assert view.reader is reader
        view.reader.read(samples_of(ordinal))


def test_views_of_one_dataset_share_their_rows(world: World):
    whole, part = world.platform.view(DATASET), world.platform.view(DATASET, until=6)
    assert [row is other for row, other in zip(whole.batches, part.batches, strict=False)] == [True] * 7
    assert part.columns.ordinals.tolist() == list(range(7))
    assert part.last_key == part.columns.last_keys[-1] == whole.last_key_of(6)
    assert part.batches_at([2, 9, 4, -1, 99]) == [whole.batches[2], whole.batches[4]]
    assert part.time_reached == max(part.columns.last)
    window = KeyRange(key_of(2, 0) - 1, key_of(4, 2))
    assert whole.keys_on(0, window).tolist() == part.keys_on(0, window).tolist()


@pytest.mark.soak("replays")
def test_a_replay_with_few_batches_open_is_the_replay_with_all_of_them_open(world: World, monkeypatch: pytest.MonkeyPatch):
    world.replay("by_amount", name="few")
    monkeypatch.setattr(shared_data, "MOST_OPEN", BATCHES)
    world.reload()
    world.replay("by_amount", name="all")
    few, whole = (world.outcome(world.run_named("by_amount", name)) for name in ("few", "all"))
    assert few == whole
    assert len(few["models"]) > 1
