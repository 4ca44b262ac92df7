"""Samples that got their first label between two decision points."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modyn_dagster.data.split import TRAIN
from modyn_dagster.data.view import DatasetView
from modyn_dagster.data.windows.newly_labelled import newly_labelled
from modyn_dagster.keys import ORIGIN, KeyRange, key_of, ordinal_of
from tests.examples import examples
from tests.pipeline.labels.laws import DAYS, GAP, Delivery, drawn_labels
from tests.pipeline.late_labels import Label, arrive_later, known_by_brute_force
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, ROWS, amount

Worlds = Callable[..., World]


@pytest.fixture
def world(world_of: Worlds) -> World:
    """Five batches whose labels may arrive later."""
    world = world_of(amount())
    world.deliver(range(DAYS))
    return world


def usable(view: DatasetView, labels: list[Label], point: int) -> set[int]:
    """Train samples that a decision at a point may learn from, from the definition."""
    known = known_by_brute_force(labels, GAP * ordinal_of(point))
    train = set(view.keys_on(TRAIN, KeyRange(ORIGIN, point)).tolist())
    return {key for key in known if key <= point} & train


points = st.lists(st.tuples(st.integers(0, DAYS - 1), st.integers(0, ROWS - 1)), min_size=1, max_size=6, unique=True)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(8), deadline=None)
@given(seed=st.integers(0, 1000), points=points)
def test_every_sample_is_new_once_at_the_first_point_that_knows_its_label(
    world: World, seed: int, points: list[tuple[int, int]]
) -> None:
    labels = drawn_labels(seed)
    arrive_later(world, GAP)
    Delivery.of(labels, seed)(world)
    whole, since, seen = world.platform.view(DATASET), ORIGIN, set[int]()
    for until in sorted(key_of(*point) for point in points):
        view = whole.up_to(ordinal_of(until))
        chunks = list(newly_labelled(view, since, until, TRAIN))
        keys = np.concatenate([np.empty(0, np.uint64), *(keys for keys, _ in chunks)])
        assert keys.tolist() == sorted(usable(view, labels, until) - seen)
        known = known_by_brute_force(labels, GAP * ordinal_of(until))
        assert [int(value) for _, values in chunks for value in values] == [known[int(key)] for key in keys]
        since, seen = until, seen | set(keys.tolist())


@given(points=points)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(5), deadline=None)
def test_labels_that_come_with_their_samples_are_new_with_them(world: World, points: list[tuple[int, int]]) -> None:
    view, since = world.platform.view(DATASET), ORIGIN
    for until in sorted(key_of(*point) for point in points):
        chunks = list(newly_labelled(view, since, until, TRAIN))
        assert [int(key) for keys, _ in chunks for key in keys] == view.keys_on(TRAIN, KeyRange(since, until)).tolist()
        since = until
