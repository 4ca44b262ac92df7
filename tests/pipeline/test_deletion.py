"""What a deletion does to pipelines: nothing that was decided, everything that is selected, trained or judged from now on."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.deletions import lock_deletions
from modyn_dagster.catalog.evaluations import list_evaluations, list_predictions
from modyn_dagster.catalog.models import list_models
from modyn_dagster.catalog.tables import pipeline_run
from modyn_dagster.catalog.training_sets import find_training_set
from modyn_dagster.catalog.triggers import TriggerRow, get_trigger
from modyn_dagster.errors import CorruptFile, DeletedKey, LostClaim, RunError
from modyn_dagster.ingestion.deletion import delete_samples
from modyn_dagster.ingestion.purge import purge_samples
from modyn_dagster.ingestion.replaced import replaced_pairs
from modyn_dagster.keys import KeyArray
from modyn_dagster.pipeline import stages
from modyn_dagster.pipeline.attempts import claim_trigger, give_up_attempt, working_attempt
from modyn_dagster.pipeline.context import TriggerContext, context_of, trigger_context
from modyn_dagster.pipeline.due import evaluation_due
from modyn_dagster.pipeline.retention import apply_retention
from modyn_dagster.pipeline.select import open_training_set, select_training_set
from modyn_dagster.pipeline.stages import evaluation_stage, model_stage, training_set_stage
from modyn_dagster.pipeline.usage import usages_of
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, ROWS, amount, timed

SPLIT = {"train": 0.7, "evaluate": 0.3}


def delete(world: World, keys) -> None:
    platform = world.platform
    delete_samples(platform.engine, platform.home, platform.view(DATASET).row, np.asarray(keys, dtype=np.uint64))


def purge(world: World, keys) -> None:
    delete(world, keys)
    platform, view = world.platform, world.platform.view(DATASET)
    purge_samples(platform.engine, platform.home, view.spec, view.row, np.asarray(keys, dtype=np.uint64))


def keys_of(world: World, trigger: TriggerRow) -> KeyArray:
    with world.platform.transaction() as conn:
        row = find_training_set(conn, trigger.id)
    assert row is not None
    return open_training_set(context_of(world.platform, "by_amount", trigger.partition_key), row).keys()


def claimed(world: World, trigger: TriggerRow, pipeline: str = "by_amount") -> TriggerContext:
    context = context_of(world.platform, pipeline, trigger.partition_key)
    return replace(context, trigger=claim_trigger(world.platform, context.trigger, f"run {context.trigger.attempt}"))


def reread(world: World, trigger: TriggerRow) -> TriggerRow:
    with world.platform.transaction() as conn:
        return get_trigger(conn, trigger.id)


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
            context = trigger_context(world.platform, run, trigger)
            with world.platform.transaction() as conn:
                row = find_training_set(conn, trigger.id)
            assert row is not None
            keys = open_training_set(context, row).keys()
            assert len(keys)
            assert not np.isin(keys, gone).any()
    assert outcomes[0] == outcomes[1]
    assert outcomes[0]["triggers"] == before["triggers"]
    assert outcomes[0]["training_sets"] != before["training_sets"]


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
    with working_attempt(world.platform, context.run, context.trigger):
        training_set_stage(context)
    assert 7 in keys_of(world, trigger)
    delete(world, [7])
    later = claimed(world, trigger)
    with pytest.raises(DeletedKey, match="key 7 was deleted"), working_attempt(world.platform, later.run, later.trigger):
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
    training_set_stage(context)
    _ = context.view.reader
    delete(world, [3])
    with pytest.raises(DeletedKey, match="key 3 was deleted"), working_attempt(world.platform, context.run, context.trigger):
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
    training_set_stage(context)
    delete(world, [1 << 32])
    assert model_stage(context) is not None


def test_deletions_do_not_use_up_the_attempts_of_a_trigger(world_of):
    world = world_of(amount(every=40, max_attempts=1))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    for position in range(3):
        context = claimed(world, reread(world, trigger))
        training_set_stage(context)
        delete(world, [position])
        with pytest.raises(DeletedKey), working_attempt(world.platform, context.run, context.trigger):
            model_stage(context)
    now = reread(world, trigger)
    assert (now.state, now.attempt) == ("pending", 4)
    context = claimed(world, now)
    assert give_up_attempt(world.platform, context.run, context.trigger, "boom").state == "failed"


def test_a_key_that_only_a_reader_takes_for_deleted_uses_up_attempts(world_of):
    world = world_of(amount(every=40, max_attempts=1))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    context = claimed(world, trigger)
    with pytest.raises(DeletedKey), working_attempt(world.platform, context.run, context.trigger):
        raise DeletedKey(5, DATASET)
    assert reread(world, trigger).state == "failed"


@pytest.mark.parametrize("erase", [delete, purge], ids=["delete", "purge"])
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

    monkeypatch.setattr(stages, "select_training_set", select_then_lose)
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


def cells_of(world: World, trigger: TriggerRow) -> dict[str, tuple[int, int]]:
    with world.platform.transaction() as conn:
        cells = list_evaluations(conn, trigger.run_id, trigger.id)
    return {f"{cell.interval_start:%d}": (cell.n_samples, cell.n_deleted) for cell in cells if cell.metric == "accuracy"}


def evaluated(world: World, trigger: TriggerRow) -> bool:
    context = context_of(world.platform, "by_amount", trigger.partition_key)
    return evaluation_stage(replace(context, view=world.platform.view(DATASET)), finished=False).fresh


def test_deleted_samples_leave_the_cells_they_were_in_and_prediction_files_stay(world_of):
    world = world_of(amount(every=80))
    world.deliver(range(5))
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    [first, _] = world.triggers(run.id, "trained")
    assert cells_of(world, first) == {"01": (80, 0), "03": (80, 0)}
    with world.platform.transaction() as conn:
        files = list_predictions(conn, first.id)
    delete(world, [0, 1, 2 << 32 | 5, 4 << 32])
    assert evaluation_due(world.platform, run) == world.triggers(run.id, "trained")
    assert evaluated(world, first)
    assert cells_of(world, first) == {"01": (78, 2), "03": (79, 1)}
    with world.platform.transaction() as conn:
        assert list_predictions(conn, first.id) == files
    assert not evaluated(world, first)
    world.live_until_idle("by_amount")
    assert evaluation_due(world.platform, run) == []


def test_scores_after_a_deletion_are_those_of_a_model_that_was_never_shown_the_samples(world_of):
    world = world_of(amount(every=80), split=SPLIT)
    world.deliver(range(6))
    world.live_until_idle("by_amount")
    view = world.platform.view(DATASET)
    judged = [batch.ordinal << 32 | int(p) for batch in view.batches for p in view.evaluation_positions(batch)[::2]]
    delete(world, judged)
    world.live_until_idle("by_amount")
    late = world.outcome(world.run("by_amount", "live"))["evaluations"]
    world.replay("by_amount")
    early = world.outcome(world.run("by_amount", "replay"))["evaluations"]
    assert late
    assert late == [cell for cell in early if cell[:4] in {other[:4] for other in late}]


def test_one_sample_more_and_one_less_in_an_interval_is_scored_again(world_of):
    world = world_of(amount(every=80))
    world.deliver(range(4))
    world.live_until_idle("by_amount")
    trigger = world.triggers(world.run("by_amount", "live").id, "trained")[0]
    before = cells_of(world, trigger)
    world.deliver([1], hours_late=1)
    late = world.platform.view(DATASET).batches[-1]
    delete(world, [late.ordinal << 32 | p for p in range(4, ROWS)])
    delete(world, range(4))
    assert evaluated(world, trigger)
    after = cells_of(world, trigger)
    assert after["01"][0] == before["01"][0]
    assert after["01"] != before["01"]


def test_an_interval_may_lose_all_its_samples(world_of):
    world = world_of(amount(every=80))
    world.deliver(range(4))
    world.live_until_idle("by_amount")
    delete(world, [day << 32 | p for day in (0, 1) for p in range(ROWS)])
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    with world.platform.transaction() as conn:
        cells = [cell for cell in list_evaluations(conn, run.id) if f"{cell.interval_start:%d}" == "01"]
    assert cells
    assert all((cell.n_samples, cell.value) == (0, None) and cell.undefined for cell in cells)


def test_new_predictions_leave_deleted_samples_out(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    world.live_until_idle("by_amount")
    world.deliver([1])
    delete(world, [1 << 32 | p for p in range(0, ROWS, 2)])
    [trigger] = world.triggers(world.run("by_amount", "live").id, "trained")
    evaluated(world, trigger)
    with world.platform.transaction() as conn:
        assert [file.n_samples for file in list_predictions(conn, trigger.id)] == [ROWS, ROWS // 2]


def test_usage_names_training_sets_models_and_what_was_trained_further_from_them(world_of):
    chain = {"use_previous_model": True}
    content = amount(every=40)
    content["training"] |= chain
    world = world_of(content)
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    dataset_id = world.platform.view(DATASET).row.id
    run = world.run("by_amount", "live")
    with world.platform.transaction() as conn:
        models = list_models(conn, run.id)
    found = usages_of(world.platform, dataset_id, np.array([1 << 32, 1 << 32 | 5, 1 << 32 | 5], dtype=np.uint64))
    shown = [(u.used_by.partition_key, u.n_keys, u.used_by.model_hash, u.inherited) for u in found]
    assert shown == [("000001-000001", 2, models[1].hash, False), ("000001-000002", 0, models[2].hash, True)]
    assert usages_of(world.platform, dataset_id, np.array([5 << 32], dtype=np.uint64)) == []


def test_usage_of_files_that_are_gone_or_damaged_is_unknown(world_of):
    world = world_of(amount(every=40, retention={"training_sets": 1}))
    world.deliver(range(3))
    world.live_until_idle("by_amount")
    apply_retention(world.platform)
    dataset_id = world.platform.view(DATASET).row.id
    [first] = usages_of(world.platform, dataset_id, np.array([3], dtype=np.uint64))
    assert (first.used_by.ordinal, first.n_keys, first.why_unknown) == (0, None, "file removed by retention")
    path = world.platform.home / "training_sets" / "000001" / "000002.arrow"
    path.write_bytes(path.read_bytes()[:-8])
    [last] = usages_of(world.platform, dataset_id, np.array([2 << 32], dtype=np.uint64))
    assert last.n_keys is None
    assert "000002.arrow" in last.why_unknown


def stored(world: World, kind: str) -> list[str]:
    return sorted(path.name for path in (world.platform.home / kind / DATASET).iterdir())


def test_a_training_goes_on_with_the_files_it_began_with_and_they_go_once_it_has_ended(world_of):
    world = world_of(amount(every=40, max_attempts=1))
    world.deliver([0, 1])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    context = claimed(world, trigger)
    # Deletions in the batch it trains on, but of samples it never sees: nothing of it was opened yet.
    delete(world, [1 << 32])
    context = replace(context, view=world.platform.view(DATASET))
    purge(world, [1 << 32 | 1])
    purge(world, [1 << 32 | 2, 1 << 32 | 3])
    platform = world.platform
    kept = ["1.1.arrow", "1.arrow"]
    assert [path.name for path in replaced_pairs(platform.engine, platform.home, context.view.row)] == kept
    assert [name for name in stored(world, "batches") if name.endswith(".deleted")] == [
        "1.1.deleted",
        "1.2.deleted",
        "1.3.deleted",
    ]
    training_set_stage(context)
    assert len(context.view.reader.read(np.array([1 << 32 | 4], dtype=np.uint64)).times) == 1
    assert model_stage(context) is not None
    delete(world, [1 << 32])
    assert stored(world, "batches") == ["0.arrow", "1.2.arrow", "1.2.deleted", "1.3.deleted"]
    assert replaced_pairs(platform.engine, platform.home, context.view.row) == []


def test_an_attempt_that_meets_a_file_which_was_replaced_does_not_count(world_of):
    world = world_of(amount(every=40, max_attempts=1))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    # Files go, since nothing trains yet when they are replaced.
    context = context_of(world.platform, "by_amount", trigger.partition_key)
    for positions in ([1], [2], [3]):
        purge(world, positions)
    context = replace(context, trigger=claim_trigger(world.platform, context.trigger, "one"))
    with pytest.raises(CorruptFile, match=r"0\.arrow"), working_attempt(world.platform, context.run, context.trigger):
        training_set_stage(context)
    now = reread(world, trigger)
    assert (now.state, now.attempt) == ("pending", 2)
    world.live_until_idle("by_amount")
    assert reread(world, trigger).state == "trained"


def test_an_attempt_that_meets_a_damaged_file_counts(world_of):
    world = world_of(amount(every=40, max_attempts=1))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    purge(world, [1])
    index = world.platform.home / "batches" / DATASET / "0.1.arrow"
    index.write_bytes(index.read_bytes()[:-8])
    context = claimed(world, trigger)
    with pytest.raises(CorruptFile), working_attempt(world.platform, context.run, context.trigger):
        training_set_stage(context)
    assert reread(world, trigger).state == "failed"


def test_a_stalled_attempt_leaves_the_training_set_of_the_one_that_followed_alone(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    stalled = claimed(world, trigger)
    give_up_attempt(world.platform, stalled.run, stalled.trigger, "it does not answer")
    delete(world, [7])
    training_set_stage(claimed(world, trigger))
    with pytest.raises(LostClaim):
        select_training_set(stalled)
    assert len(keys_of(world, trigger)) == ROWS - 1
    assert [path.name for path in (world.platform.home / "training_sets" / "000001").iterdir()] == ["000000.arrow"]


def test_a_training_set_whose_commit_fails_is_replaced_by_the_next_selection(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    context = claimed(world, trigger)
    training_set_stage(context)
    give_up_attempt(world.platform, context.run, context.trigger, "boom")
    delete(world, [7])
    context = claimed(world, trigger)
    path = world.platform.home / "training_sets" / "000001" / "000000.arrow"
    before = path.read_bytes()

    def fail(_):
        if path.read_bytes() != before:
            raise ConnectionError("gone")

    sa.event.listen(world.platform.engine, "commit", fail)
    with pytest.raises(ConnectionError), working_attempt(world.platform, context.run, context.trigger):
        try:
            training_set_stage(context)
        finally:
            sa.event.remove(world.platform.engine, "commit", fail)
    assert path.read_bytes() != before
    training_set_stage(claimed(world, trigger))
    assert len(keys_of(world, trigger)) == ROWS - 1


def test_a_trained_trigger_may_be_selected_again_by_several_at_once(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    world.live_until_idle("by_amount")
    [trigger] = world.triggers(world.run("by_amount", "live").id, "trained")
    before = keys_of(world, trigger)
    context = context_of(world.platform, "by_amount", trigger.partition_key)
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(select_training_set, context) for _ in range(24)]:
            done.result()
    assert keys_of(world, trigger).tolist() == before.tolist()
    assert [path.name for path in (world.platform.home / "training_sets" / "000001").iterdir()] == ["000000.arrow"]


def test_a_commit_that_waits_for_a_deletion_keeps_nobody_from_the_run(world_of):
    world = world_of(amount(every=40))
    world.deliver([0])
    trigger = world.tick("by_amount").train
    assert trigger is not None
    context = claimed(world, trigger)
    training_set_stage(context)
    waiting = sa.text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    with ThreadPoolExecutor(1) as threads:
        with world.platform.transaction() as conn:
            lock_deletions(conn, context.view.row.id)
            done = threads.submit(model_stage, context)
            limit = time.monotonic() + 60
            while not conn.execute(waiting).scalar_one() and not done.done() and time.monotonic() < limit:
                time.sleep(0.01)
            assert not done.done()
            row = sa.select(pipeline_run.c.id).where(pipeline_run.c.id == context.run.id)
            assert conn.execute(row.with_for_update(nowait=True)).scalar_one() == context.run.id
        assert done.result() is not None
