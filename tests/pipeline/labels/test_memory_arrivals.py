"""Replay memories where labels arrive later: a sample is taken at the first trigger that knows its label."""

from collections.abc import Callable

import numpy as np
import pytest

from modyn_dagster.data.split import TRAIN
from modyn_dagster.keys import KeyRange, ordinal_of
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.operate.sample_lineage import usages_of
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set, select_training_set
from tests.pipeline.deleting import keys_of
from tests.pipeline.late_labels import add_labels, arrive_later, at_once, delayed, known_by_brute_force
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, amount

Worlds = Callable[..., World]


@pytest.mark.soak("labels")
def test_a_memory_takes_each_sample_at_the_first_trigger_that_knows_its_label(world_of: Worlds) -> None:
    world = world_of(amount(selection={"strategy": {"kind": "gdumb", "n": 1000}}))
    world.deliver(range(6))
    labels = delayed(at_once(world), 2)
    arrive_later(world)
    add_labels(world, labels)
    world.replay("by_amount")
    triggers = world.triggers(world.run("by_amount", "replay").id, "trained")
    for trigger in triggers:
        context = context_of(world.platform, "by_amount", trigger.partition_key)
        assert context.training_set is not None
        keys = np.concatenate([part.keys for part in open_training_set(context, context.training_set).partitions()])
        known = known_by_brute_force(labels, ordinal_of(trigger.point))
        assert keys.tolist() == sorted(key for key in known if key <= trigger.key)
        # Computed again from the beginning, with later labels in the catalog: the same, or an error.
        for path in (world.platform.home / "training_sets").rglob("*.state.json"):
            path.unlink()
        select_training_set(context)
    assert len(triggers) > 1


def test_a_memory_that_was_reset_takes_no_earlier_sample_whose_label_arrives_after_the_reset(world_of: Worlds) -> None:
    memory = {"kind": "gdumb", "n": 1000, "reset": "after_trigger"}
    world = world_of(amount(every=60, selection={"strategy": memory}))
    world.deliver(range(6))
    labels = delayed(at_once(world), 2)
    arrive_later(world)
    add_labels(world, labels)
    world.replay("by_amount")
    begin, late = -1, []
    for trigger in world.triggers(world.run("by_amount", "replay").id, "trained"):
        known = known_by_brute_force(labels, ordinal_of(trigger.point))
        row = context_of(world.platform, "by_amount", trigger.partition_key).training_set
        assert row is not None
        assert keys_of(world, trigger).tolist() == sorted(key for key in known if begin < key <= trigger.key)
        assert (row.after, row.until) == (begin, trigger.key)
        late += [key for key in known if key <= begin and key not in late]
        begin = trigger.key
    assert late
    # Lineage looks for samples in the sets whose window reaches them.
    view, held = world.platform.view(DATASET), dict[str, int]()
    for trigger in world.triggers(world.run("by_amount", "replay").id, "trained"):
        held |= {trigger.partition_key: len(keys_of(world, trigger))}
    uses = usages_of(world.platform, view.row.id, view.keys_on(TRAIN, KeyRange(-1, view.last_key)))
    assert {use.used_by.partition_key: use.n_keys for use in uses} == held
