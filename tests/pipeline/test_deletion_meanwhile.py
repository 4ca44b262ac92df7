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
from modyn_dagster.pipeline.platform import ahead_path, checkpoint_path
from modyn_dagster.pipeline.replay.run import run_lock
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


@pytest.mark.soak("deletions")
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


def files_in(world: World, *folders: str) -> list[str]:
    home = world.platform.home
    return [str(path.relative_to(home)) for folder in folders for path in (home / folder).rglob("*") if path.is_file()]


def test_nothing_is_left_of_a_model_that_is_not_committed(world_of) -> None:
    content = amount(every=20)
    content["training"] |= {"use_previous_model": True, "carry_optimizer": True, "checkpoint": {"steps": 1}}
    world = world_of(content)
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    context = training_set_stage(claimed(world, trigger)).context
    delete(world, [3])
    with pytest.raises(DeletedKey), working_attempt(context):
        model_stage(context)
    assert list(world.platform.model_store.list()) == list(world.platform.weight_cache.list()) == []
    assert files_in(world, "checkpoints", "optimizers") == []


@pytest.mark.soak("deletions")
def test_a_model_that_is_not_committed_stays_where_another_trigger_has_an_equal_one(world_of) -> None:
    world = world_of(amount(every=20), amount("same", every=20))
    world.deliver([0])
    world.live_until_idle("same")
    trigger = world.tick("by_amount").train
    assert trigger is not None
    context = training_set_stage(claimed(world, trigger)).context
    delete(world, [3])
    with pytest.raises(DeletedKey), working_attempt(context):
        model_stage(context)
    with world.platform.transaction() as conn:
        named = {model.hash for model in list_models(conn, world.run("same", "live").id)}
    assert set(world.platform.model_store.list()) == named


@pytest.mark.soak("deletions")
def test_guesses_and_checkpoints_of_all_runs_of_the_dataset_go_with_the_samples(world_of) -> None:
    world = world_of(amount(every=EVERY, max_attempts=2), split=SPLIT)
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    world.replay("by_amount", world.keys()[:1], name="short")
    replay = world.run("by_amount", "replay")
    home, trigger = world.platform.home, world.triggers(run.id, "trained")[-1]
    guesses = [home / ahead_path(replay.id, 7), home / checkpoint_path(replay.id, 7)]
    half = home / checkpoint_path(run.id, trigger.ordinal)
    parts = [half.with_name(half.name + suffix) for suffix in (".model0", ".losses1")]
    for path in [*guesses, *parts]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"weights")
    key = int(keys_of(world, trigger)[0])
    with run_lock(world.platform.engine, replay):
        document = execute(world, [key])
    assert [path.exists() for path in parts] == [False, False]
    assert [path.exists() for path in guesses] == [True, True]
    assert any("what it trained ahead is removed when it ends" in note for note in document.notes)
    listed = {file.path for file in document.files if file.kind == "checkpoint"}
    assert listed == {str(path.relative_to(home)) for path in parts}
    execute(world, [key])
    assert [path.exists() for path in guesses] == [False, False]


def test_a_purge_tells_what_still_holds_the_samples(world_of) -> None:
    world = world_of(amount(every=40), split=SPLIT)
    world.deliver([0, 1])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    claimed(world, trigger)
    document = execute(world, [3], purge=True)
    [original] = [note for note in document.notes if "day_00.csv" in note]
    assert "copied at ingestion" in original or "read in place" in original
    [replaced] = [note for note in document.notes if "a training may still read" in note]
    assert "0.arrow" in replaced
