"""Default labels: a sample without a label has one once the stream is some time older, as of each position."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modyn_dagster.catalog.labels.label_files import label_files
from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.data.view import DatasetView
from modyn_dagster.data.windows.window_columns import WindowColumns
from modyn_dagster.keys import KeyRange, key_of, ordinal_of
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set
from modyn_dagster.reporting.label_coverage import label_coverage
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.spec.sources import DefaultLabel
from tests.examples import examples
from tests.pipeline.late_labels import Label, add_labels, arrive_later, at_once, known_by_brute_force, replace_labels
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, amount

Worlds = Callable[..., World]

DAY = {"label": 0, "after": "1d"}


def known_or_default(view: DatasetView, labels: Sequence[Label], position: int, default: int, after: str) -> dict[int, int]:
    """Label of each sample that has arrived by a position, by key, from the definition."""
    samples = [
        (key_of(batch.ordinal, row), time)
        for batch in view.batches
        if batch.arrival is not None and batch.arrival <= position
        for row, time in enumerate(view.times(batch).astype("datetime64[s]").astype(int).tolist())
    ]
    now = max((time for _, time in samples), default=0)
    closed = {key: default for key, time in samples if now - time >= seconds_of(after)}
    return closed | known_by_brute_force(labels, position)


@pytest.fixture
def late_world(world_of: Worlds) -> World:
    """Six batches of forty samples, the fourth with times before those of the third, whose labels arrive later; without any."""
    world = world_of(amount(selection={"window": "all"}))
    world.deliver(range(3))
    world.deliver([4], hours_late=60)
    world.deliver([5, 6])
    arrive_later(world)
    return world


#: Label of a sample: arrival, value, time known.
rows = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 1), st.integers(0, 2)), max_size=2)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(6), deadline=None)
@given(
    plans=st.dictionaries(st.integers(0, 6 * 40 - 1), rows),
    after=st.sampled_from(["20m", "5h", "1d", "25h", "40h", "3d", "9d"]),
    default=st.integers(0, 1),
    positions=st.permutations(range(-1, 9)),
)
def test_labels_as_of_any_position_are_those_of_the_definition(
    late_world: World, plans: dict[int, Any], after: str, default: int, positions: Sequence[int]
) -> None:
    labels = [
        Label(key_of(number // 40, number % 40), value, max(arrival, number // 40), known_at)
        for number, drawn in plans.items()
        for arrival, value, known_at in drawn
    ]
    replace_labels(late_world, labels)
    whole = with_default(late_world, default, after)
    everything = np.array([key_of(batch.ordinal, row) for batch in whole.batches for row in range(40)], np.uint64)
    for position in positions:
        view = whole.labelled_as_of(position)
        expected = known_or_default(view, labels, position, default, after)
        assert view.labels_at(everything).tolist() == [expected.get(int(key), -1) for key in everything]
        read = view.reader.read(everything).labels
        assert read is not None
        assert read.tolist() == [expected.get(int(key), -1) for key in everything]
        for backend in ("arrow", "postgres"):
            columns = WindowColumns(view, KeyRange(-1, view.last_key), backend)
            pairs = [(int(key), int(label)) for keys, values in columns.labels() for key, label in zip(keys, values, strict=True)]
            assert pairs == sorted(expected.items())
            assert columns.count() == len(expected)
    for batch in whole.batches:
        known = [(view.label_version(batch), view.labels(batch)[0].tolist()) for view in map(whole.labelled_as_of, range(9))]
        for (version, values), (next_version, next_values) in pairwise(known):
            assert next_version > version or (next_version, next_values) == (version, values)


def with_default(world: World, label: int, after: str) -> DatasetView:
    """A view of all batches of a project, with a default label."""
    view, root = world.platform.view(DATASET), world.platform.project.root_of(DATASET)
    assert view.spec.label is not None
    changed = view.spec.label.model_copy(update={"default_after": DefaultLabel(label=label, after=after)})
    spec = view.spec.model_copy(update={"label": changed})
    return DatasetView(view.engine, view.home, view.row, spec, root, view.batches)


@pytest.mark.parametrize("backend", ["arrow", "postgres"])
def test_a_training_set_has_the_samples_that_are_closed_at_its_trigger(world_of: Worlds, backend: str) -> None:
    world = world_of(amount(selection={"window": "all", "backend": backend}))
    world.deliver(range(6))
    positives = [replace(each, arrival=each.arrival + 2) for each in at_once(world) if each.value == 1]
    arrive_later(world, default_after=DAY)
    add_labels(world, positives)
    world.replay("by_amount")
    triggers = world.triggers(world.run("by_amount", "replay").id, "trained")
    assert len(triggers) == 2
    for trigger in triggers:
        context = context_of(world.platform, "by_amount", trigger.partition_key)
        assert context.training_set is not None
        keys = np.concatenate([part.keys for part in open_training_set(context, context.training_set).partitions()])
        known = known_or_default(context.view, positives, ordinal_of(trigger.point), 0, "1d")
        assert keys.tolist() == sorted(key for key in known if key <= trigger.key)
        assert len(keys) > len([each for each in positives if each.arrival <= ordinal_of(trigger.point)])


@pytest.mark.soak("labels")
def test_a_memory_takes_a_sample_at_the_first_trigger_at_which_it_is_closed(world_of: Worlds) -> None:
    world = world_of(amount(every=60, selection={"strategy": {"kind": "gdumb", "n": 1000}}))
    world.deliver(range(6))
    labels = [replace(each, arrival=each.arrival + 2) for each in at_once(world) if each.key % 5 == 0]
    arrive_later(world, default_after={"label": 1, "after": "36h"})
    add_labels(world, labels)
    world.replay("by_amount")
    triggers = world.triggers(world.run("by_amount", "replay").id, "trained")
    for trigger in triggers:
        context = context_of(world.platform, "by_amount", trigger.partition_key)
        assert context.training_set is not None
        keys = np.concatenate([part.keys for part in open_training_set(context, context.training_set).partitions()])
        known = known_or_default(context.view, labels, ordinal_of(trigger.point), 1, "36h")
        assert keys.tolist() == sorted(key for key in known if key <= trigger.key)
    assert len(triggers) > 1


@pytest.mark.soak("replays")
def test_live_equals_the_replay_and_later_rows_change_only_final_scores(world_of: Worlds) -> None:
    world = world_of(amount(selection={"window": "all"}))
    world.deliver(range(6))
    labels = at_once(world)
    arrive_later(world, default_after=DAY)
    add_labels(world, [replace(each, arrival=each.arrival + 2) for each in labels if each.value == 1])
    world.live_until_idle("by_amount")
    world.replay("by_amount")
    live, before = (world.outcome(world.run("by_amount", mode)) for mode in ("live", "replay"))
    for name in ("triggers", "training_sets", "models"):
        assert live[name] == before[name], name
    assert live["evaluations"]
    assert set(live["evaluations"]) <= set(before["evaluations"])
    # An early time does not keep a row from correcting the default label.
    add_labels(world, [Label(each.key, 1, 9, known_at=-1) for each in labels])
    world.reload()
    world.replay("by_amount", name="after")
    run = world.run_named("by_amount", "after")
    assert world.outcome(run) == before
    with world.platform.transaction() as conn:
        cells = list_evaluations(conn, run.id)
    assert all(cell.final_labelled == cell.n_samples for cell in cells)
    assert any(cell.n_labelled is not None and 0 < cell.n_labelled < cell.n_samples for cell in cells)
    assert any(cell.final_value != cell.value for cell in cells)


def test_samples_with_the_default_label_count_as_labelled_and_are_counted_apart(late_world: World) -> None:
    labels = [Label(key_of(0, row), 1, 5) for row in range(10)]
    add_labels(late_world, labels)
    view = with_default(late_world, 0, "2d")
    with late_world.platform.transaction() as conn:
        files = label_files(conn, view.row.id)
    total = label_coverage(view.home, view.spec, view.batches, files).total
    expected = known_or_default(view, labels, 5, 0, "2d")
    assert (total.n_samples, total.n_labelled, total.n_default) == (240, len(expected), len(expected) - 10)
    assert 0 < total.n_default < 230
    without = label_coverage(view.home, late_world.platform.project.datasets[DATASET], view.batches, files).total
    assert (without.n_labelled, without.n_default) == (10, 0)
