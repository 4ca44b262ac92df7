"""Deletion requests and trainings under way: what saw the samples is not committed, and nothing of it is left."""

import numpy as np
import pytest

from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.data.split import CALIBRATE
from modyn_dagster.errors import DeletedKey, UnknownModel, WithdrawnModel
from modyn_dagster.keys import KeyRange
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.decide.attempts import working_attempt
from modyn_dagster.pipeline.stages.trigger_stages import model_stage, training_set_stage
from tests.pipeline.deleting import EVERY, claimed, delete, execute, keys_of, reread
from tests.pipeline.world import World
from tests.projects.tiny import amount

MEMORY = {"strategy": {"kind": "clib", "n": 30}, "window": "all"}
SPLIT = {"train": 0.8, "evaluate": 0.2}


def hashes(world: World) -> list[str]:
    with world.platform.transaction() as conn:
        return [model.hash for model in list_models(conn, world.run("by_amount", "live").id)]


def test_a_training_whose_early_stopping_watched_a_deleted_sample_is_not_committed(world_of) -> None:
    content = amount(every=20)
    content["training"] |= {"early_stopping": {"patience": 1}}
    world = world_of(content, split={"train": 0.6, "calibrate": 0.4})
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    context = training_set_stage(claimed(world, trigger)).context
    row = context.training_set
    assert row is not None
    watched = context.view.keys_on(CALIBRATE, KeyRange(row.after, row.until))
    delete(world, watched[:1])
    with pytest.raises(DeletedKey, match=f"key {watched[0]} was deleted"), working_attempt(context):
        model_stage(context)
    assert hashes(world) == []
    world.live_until_idle("by_amount")
    assert reread(world, trigger).state == "trained"


@pytest.mark.parametrize(("selected", "read_again"), [(False, False), (True, False), (True, True)])
def test_a_set_that_a_replaced_model_has_chosen_is_selected_and_trained_again(world_of, selected, read_again) -> None:
    world = world_of(amount(every=EVERY, selection=MEMORY, max_attempts=1), split=SPLIT)
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    first = world.triggers(run.id, "trained")[0]
    world.deliver([3])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    context = claimed(world, trigger)
    if selected:
        context = training_set_stage(context).context
    held = keys_of(world, trigger) if selected else np.empty(0, np.uint64)
    old = hashes(world)
    key = next(int(key) for key in keys_of(world, first) if key not in held)
    document = execute(world, [key], ways={"by_amount": "retrain"})
    assert set(old).isdisjoint(hashes(world))
    if read_again:
        # As an op of Dagster in a process of its own.
        context = claimed(world, trigger)
    with pytest.raises(WithdrawnModel if selected else UnknownModel), working_attempt(context):
        model_stage(context if selected else training_set_stage(context).context)
    assert len(hashes(world)) == len(document.models)
    assert reread(world, trigger).state == "pending"
    world.live_until_idle("by_amount")
    world.replay("by_amount")
    assert world.outcome(run)["models"] == world.outcome(world.run("by_amount", "replay"))["models"]
    with world.platform.transaction() as conn:
        row = find_training_set(conn, trigger.id)
    assert row is not None
    assert row.removed_at is None
    assert context_of(world.platform, "by_amount", trigger.partition_key).model is not None
