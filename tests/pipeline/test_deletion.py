"""Deletions and pipelines: no past decision changes, but everything that is selected, trained or judged from now on."""

import numpy as np
import pytest

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.errors import DeletedKey, RunError
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.decide.attempts import give_up_attempt, working_attempt
from modyn_dagster.pipeline.stages import trigger_stages
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set, select_training_set
from modyn_dagster.pipeline.stages.trigger_stages import model_stage, training_set_stage
from tests.pipeline.deleting import SPLIT, claimed, delete, keys_of, purge, reread
from tests.projects.tiny import DATASET, ROWS, amount, timed
from tests.variants import represented


def test_both_backends_leave_the_same_keys_out_and_take_the_same_decisions_as_before(world_of):
    selection = {"limit": 50, "partition_size": 16}
    world = world_of(
        amount("on_arrow", selection=selection | {"backend": "arrow"}),
        amount("on_postgres", selection=selection | {"backend": "postgres"}),
        split=SPLIT,
    )
    world.deliver(range(6))
    world.replay("on_arrow", name="before")
    before = world.outcome(world.run("on_arrow", "replay"))
    gone = [key << 32 | position for key in range(6) for position in range(key, ROWS, 3)]
    delete(world, gone)
    outcomes = []
    for name in ("on_arrow", "on_postgres"):
        world.replay(name, name="after")
        run = world.run(name, "replay")
        outcomes.append(world.outcome(run))
        for trigger in world.triggers(run.id):
            context = context_of(world.platform, name, trigger.partition_key)
            with world.platform.transaction() as conn:
                row = find_training_set(conn, trigger.id)
            assert row is not None
            keys = open_training_set(context, row).keys()
            assert len(keys)
            assert not np.isin(keys, gone).any()
    assert outcomes[0] == outcomes[1]
    assert outcomes[0]["triggers"] == before["triggers"]
    assert outcomes[0]["training_sets"] != before["training_sets"]


@pytest.mark.soak("deletions")
@pytest.mark.parametrize("pipeline", [amount(every=60), timed()], ids=lambda content: content["name"])
def test_live_equals_a_replay_of_later_when_samples_were_deleted_before_they_were_seen(world_of, pipeline):
    world = world_of(pipeline, split=SPLIT)
    name = pipeline["name"]
    world.deliver(range(4))
    delete(world, [5, 6, 1 << 32, 3 << 32 | 39])
    world.live_until_idle(name)
    world.deliver(range(4, 8))
    world.live_until_idle(name)
    world.replay(name)
    live, replayed = (world.outcome(world.run(name, mode)) for mode in ("live", "replay"))
    assert live["models"]
    assert {k: live[k] for k in ("triggers", "training_sets", "models")} == {
        k: replayed[k] for k in ("triggers", "training_sets", "models")
    }


def test_a_training_set_whose_model_is_not_trained_yet_is_selected_again(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    context = claimed(world, trigger)
    with working_attempt(context):
        training_set_stage(context)
    assert 7 in keys_of(world, trigger)
    delete(world, [7])
    later = claimed(world, trigger)
    with pytest.raises(DeletedKey, match="key 7 was deleted"), working_attempt(later):
        model_stage(later)
    following = reread(world, trigger)
    assert (following.state, following.attempt) == ("pending", 2)
    assert "selects again" in str(following.error)
    world.live_until_idle("by_amount")
    assert reread(world, trigger).state == "trained"
    assert 7 not in keys_of(world, trigger)
    assert len(keys_of(world, trigger)) == ROWS - 1


def test_a_deletion_during_training_keeps_the_model_from_being_committed(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    context = claimed(world, trigger)
    context = training_set_stage(context).context
    _ = context.view.reader
    delete(world, [3])
    with pytest.raises(DeletedKey, match="key 3 was deleted"), working_attempt(context):
        model_stage(context)
    with world.platform.transaction() as conn:
        assert list_models(conn, context.run.id) == []
    assert reread(world, trigger).state == "pending"


def test_a_deletion_of_other_samples_during_training_is_nobodys_business(world_of):
    world = world_of(amount(every=40))
    world.deliver([0, 1])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    context = claimed(world, trigger)
    context = training_set_stage(context).context
    delete(world, [1 << 32])
    assert model_stage(context) is not None


@pytest.mark.soak("replays")
def test_deletions_do_not_use_up_the_attempts_of_a_trigger(world_of):
    world = world_of(amount(every=40, max_attempts=1))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    for position in range(3):
        context = claimed(world, reread(world, trigger))
        context = training_set_stage(context).context
        delete(world, [position])
        with pytest.raises(DeletedKey), working_attempt(context):
            model_stage(context)
    now = reread(world, trigger)
    assert (now.state, now.attempt) == ("pending", 4)
    context = claimed(world, now)
    assert give_up_attempt(world.platform, context.run, context.trigger, "boom")[1].state == "failed"


def test_a_key_that_only_a_reader_takes_for_deleted_uses_up_attempts(world_of):
    world = world_of(amount(every=40, max_attempts=1))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    context = claimed(world, trigger)
    with pytest.raises(DeletedKey), working_attempt(context):
        raise DeletedKey(5, DATASET)
    assert reread(world, trigger).state == "failed"


@represented("erase", {"delete": delete, "purge": purge}, "replays", "purge")
def test_a_replay_goes_on_without_what_is_deleted_while_it_trains(world_of, monkeypatch, erase):
    world = world_of(amount(every=40), split={"train": 0.9, "evaluate": 0.1})
    world.deliver(range(4))
    batches: list[BatchRow] = []

    def select_then_lose(context):
        row = select_training_set(context)
        if not batches:
            batches.extend(context.view.batches)
            erase(world, keys_of(world, context.trigger)[:2])
        return row

    monkeypatch.setattr(trigger_stages, "select_training_set", select_then_lose)
    world.replay("by_amount")
    triggers = world.triggers(world.run("by_amount", "replay").id)
    assert [(trigger.state, trigger.attempt) for trigger in triggers] == [("trained", 2), *[("trained", 1)] * (len(triggers) - 1)]
    assert batches[0].n_deleted == 0
    deleted = world.platform.view(DATASET).deleted
    assert len(deleted.positions(0)) == 2
    assert not any(deleted.among(keys_of(world, trigger)).any() for trigger in triggers)


def test_a_trained_trigger_that_is_selected_again_says_that_samples_were_deleted_and_keeps_its_file(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    world.live_until_idle("by_amount")
    [trigger] = world.triggers(world.run("by_amount", "live").id, "trained")
    path = world.platform.home / "training_sets" / "000001" / "000000.arrow"
    before = path.read_bytes()
    training_set_stage(context_of(world.platform, "by_amount", trigger.partition_key))
    delete(world, [7])
    context = context_of(world.platform, "by_amount", trigger.partition_key)
    with pytest.raises(RunError, match=r"selecting again gave another training set .* samples were deleted since"):
        training_set_stage(context)
    assert [(each.name, each.read_bytes()) for each in path.parent.iterdir()] == [(path.name, before)]
    with pytest.raises(DeletedKey, match="key 7 was deleted"):
        model_stage(context)
    assert reread(world, trigger).state == "trained"
    path.unlink()
    with pytest.raises(RunError, match="samples were deleted since"):
        training_set_stage(context)
    assert not path.exists()


def test_a_trigger_that_loses_its_whole_training_set_is_skipped(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    delete(world, range(ROWS))
    world.live_until_idle("by_amount")
    assert [trigger.state for trigger in world.triggers(world.run("by_amount", "live").id)] == ["skipped"]
