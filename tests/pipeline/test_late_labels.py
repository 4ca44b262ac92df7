"""Labels that arrive after their samples: training sets and triggers see those known at their position."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from modyn_dagster.data.split import TRAIN
from modyn_dagster.keys import KeyRange, ordinal_of
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set
from tests.pipeline.late_labels import (
    add_labels,
    arrive_later,
    at_once,
    cells_of,
    delayed,
    known_by_brute_force,
    replay_outcome,
)
from tests.pipeline.measuring import drift, performance
from tests.pipeline.world import World
from tests.projects.tiny import amount

Worlds = Callable[..., World]


BALANCED = {"strategy": {"kind": "balanced"}, "limit": 40, "window": "all"}


@pytest.mark.soak("replays")
@pytest.mark.parametrize("backend", ["arrow", "postgres"])
def test_equal_labels_at_once_give_the_training_sets_models_and_scores_of_labels_with_the_samples(
    world_of: Worlds, backend: str
) -> None:
    world = world_of(amount(selection=BALANCED | {"backend": backend}))
    world.deliver(range(6))
    before = replay_outcome(world, "with samples")
    labels = at_once(world)
    arrive_later(world)
    add_labels(world, labels)
    assert replay_outcome(world, "late") == before
    for cell in cells_of(world):
        assert cell.value == cell.final_value
        assert cell.n_labelled == cell.final_labelled == cell.n_samples


@pytest.mark.parametrize("backend", ["arrow", "postgres"])
def test_a_training_set_has_the_samples_whose_labels_are_known_at_its_trigger_and_counts_the_others(
    world_of: Worlds, backend: str
) -> None:
    world = world_of(amount(selection={"window": "all", "backend": backend}))
    world.deliver(range(6))
    labels = delayed(at_once(world), 2)
    arrive_later(world)
    add_labels(world, labels)
    world.replay("by_amount")
    triggers = world.triggers(world.run("by_amount", "replay").id, "trained")
    assert len(triggers) == 2
    for trigger in triggers:
        context = context_of(world.platform, "by_amount", trigger.partition_key)
        row = context.training_set
        assert row is not None
        keys = np.concatenate([part.keys for part in open_training_set(context, row).partitions()])
        known = known_by_brute_force(labels, ordinal_of(trigger.point))
        assert keys.tolist() == sorted(key for key in known if key <= trigger.key)
        in_window = context.view.count(KeyRange(row.after, row.until), TRAIN)
        assert row.details["n_unlabelled"] == in_window - len(keys) > 0


def test_a_performance_trigger_waits_for_labels_below_its_coverage(world_of: Worlds) -> None:
    world = world_of(performance(every=60, decision={"rule": "threshold", "value": 1.01}, min_coverage=0.5))
    world.deliver(range(6))
    labels = at_once(world)
    arrive_later(world)
    # The first batches have their labels at once, the others a few batches later.
    add_labels(world, [replace(each, arrival=each.arrival + 3 * (each.arrival > 2)) for each in labels])
    world.replay("by_performance")
    reasons = [decision[4] for decision in world.decisions(world.run("by_performance", "replay"))]
    assert any("accuracy" in reason and "<=" in reason for reason in reasons)
    assert any("below min_coverage 50.0%" in reason for reason in reasons)


def test_drift_is_measured_on_samples_without_labels(world_of: Worlds) -> None:
    world = world_of(drift())
    world.deliver(range(6))
    labels = at_once(world)
    before = replayed_decisions(world, "with samples")
    arrive_later(world)
    add_labels(world, [each for each in labels if each.arrival < 2])
    after = replayed_decisions(world, "late")
    # The same points with the same windows; scores differ, as the models of later triggers do.
    assert [point for point, *_ in after[:2]] == [point for point, *_ in before[:2]]
    assert after[1][5] == before[1][5] is not None


def replayed_decisions(world: World, name: str) -> list[tuple]:
    world.replay("by_drift", name=name)
    return world.decisions(world.run_named("by_drift", name))
