"""Deletions and evaluations, and the report of the use of samples."""

from dataclasses import replace

import numpy as np
import pytest

from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.catalog.triggers import TriggerRow
from modyn_dagster.data.split import EVALUATE
from modyn_dagster.evaluation import read_predictions
from modyn_dagster.keys import ORIGIN, KeyRange
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.operate.deletion.document import Selection
from modyn_dagster.pipeline.operate.deletion.execute import begin_request, execute_request
from modyn_dagster.pipeline.operate.deletion.plan import Wish, plan_request
from modyn_dagster.pipeline.operate.retention import apply_retention
from modyn_dagster.pipeline.operate.sample_lineage import usages_of
from modyn_dagster.pipeline.stages.trigger_stages import evaluation_stage
from tests.pipeline.deleting import SPLIT, delete, shown
from tests.pipeline.pending import triggers_to_evaluate
from tests.pipeline.test_judged_on import add_dataset, deliver_other, judge, judged_on
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, ROWS, amount


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
    assert triggers_to_evaluate(world.platform, run) == world.triggers(run.id, "trained")
    assert evaluated(world, first)
    assert cells_of(world, first) == {"01": (78, 2), "03": (79, 1)}
    with world.platform.transaction() as conn:
        assert list_predictions(conn, first.id) == files
    assert not evaluated(world, first)
    world.live_until_idle("by_amount")
    assert triggers_to_evaluate(world.platform, run) == []


@pytest.mark.soak("deletions")
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


def test_predictions_by_a_pipeline_of_another_dataset_are_made_again_and_stay(world_of):
    world = world_of(amount(), split=SPLIT)
    add_dataset(world.folder)
    judge(world, judged_on({"kind": "dataset", "dataset": "other"}))
    deliver_other(world, range(5))
    world.deliver(range(5))
    world.live_until_idle("by_amount")
    platform = world.platform
    view = platform.view("other")
    judged = view.keys_on(EVALUATE, KeyRange(ORIGIN, view.last_key))[:1]
    planned = plan_request(platform, view.row, judged, Wish(Selection(by="keys", text="one"), "a person"))
    request = begin_request(platform, view.row, judged, planned)
    assert execute_request(platform, request.id, shown).state == "finished"
    with platform.transaction() as conn:
        files = [f for t in world.triggers(world.run("by_amount", "live").id, "trained") for f in list_predictions(conn, t.id)]
    assert files
    assert [file.path for file in files if not (platform.home / file.path).exists()] == []
    assert not any(np.isin(judged, read_predictions(platform.home / file.path, file.checksum).keys).any() for file in files)
