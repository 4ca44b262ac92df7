"""Cells are found again by what they follow from: another run takes them over, and nothing stale is ever served."""

import sys
import types
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.results.evaluations import evaluation, list_evaluations
from modyn_dagster.catalog.results.models import list_models, model
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.catalog.timings import stage_timing
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.stages.trigger_stages import evaluation_stage
from tests.pipeline.deleting import delete
from tests.pipeline.pending import triggers_to_evaluate
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, amount, write_pipeline

TUMBLING = {"kind": "tumbling", "every": "2d", "start": "2024-01-01"}
SIZE = "counting_cells:size"


def judged_by(*metrics: str, intervals: dict[str, Any] = TUMBLING, **fields: Any) -> dict[str, Any]:
    return amount(evaluation={"intervals": intervals, "metrics": list(metrics), "matrix": "full"}, **fields)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the intervals that the metric ``counting_cells:size`` has been computed on."""
    sizes: list[int] = []

    def size(outputs: Any, truth: Any) -> float:
        sizes.append(len(truth))
        return float(len(truth))

    module = types.ModuleType("counting_cells")
    module.__dict__["size"] = size
    monkeypatch.setitem(sys.modules, "counting_cells", module)
    return sizes


def again(world: World, content: dict[str, Any]) -> None:
    write_pipeline(world.folder, content)
    world.reload()
    world.replay("by_amount")


def cells(world: World, metric: str) -> dict[tuple[Any, ...], float | None]:
    run = world.run("by_amount", "replay")
    with world.platform.transaction() as conn:
        found = list_evaluations(conn, run.id)
    return {(c.ordinal, c.interval_start, c.interval_end): c.value for c in found if c.metric == metric}


def passes(world: World) -> int:
    """Samples predicted by all runs together: the ledger has a line of its own for every prediction."""
    with world.platform.transaction() as conn:
        statement = sa.select(sa.func.sum(stage_timing.c.n_samples)).where(stage_timing.c.stage == "evaluate")
        return int(conn.execute(statement).scalar() or 0)


def judged_again(world: World, partition_key: str) -> bool:
    context = context_of(world.platform, "by_amount", partition_key)
    return evaluation_stage(replace(context, view=world.platform.view(DATASET)), finished=True).fresh


def test_a_metric_more_costs_that_metric_and_no_prediction(world_of, counted):
    world = world_of(judged_by(SIZE))
    world.deliver(range(5))
    world.replay("by_amount")
    before, spent, run = cells(world, SIZE), passes(world), world.run("by_amount", "replay")
    counted.clear()
    again(world, judged_by(SIZE, "accuracy"))
    assert world.run("by_amount", "replay").id != run.id
    assert counted == []
    assert passes(world) == spent
    assert cells(world, SIZE) == before
    assert cells(world, "accuracy").keys() == before.keys()


@pytest.mark.soak("replays")
def test_other_intervals_cost_those_that_are_new(world_of, counted):
    world = world_of(judged_by(SIZE))
    world.deliver(range(6))
    world.replay("by_amount")
    before, spent = cells(world, SIZE), passes(world)
    counted.clear()
    again(world, judged_by(SIZE, intervals={"kind": "sliding", "every": "1d", "length": "2d", "start": "2024-01-01"}))
    after = cells(world, SIZE)
    assert before.items() < after.items()
    new = [value for key, value in after.items() if key not in before]
    assert sorted(counted) == sorted(value for value in new if value is not None)
    assert passes(world) == spent


def test_other_settings_of_training_share_nothing(world_of, counted):
    world = world_of(judged_by(SIZE))
    world.deliver(range(3))
    world.replay("by_amount")
    spent, n = passes(world), len(counted)
    again(world, judged_by(SIZE, seed=8))
    assert passes(world) == 2 * spent
    assert len(counted) == 2 * n


def test_fewest_samples_are_part_of_what_a_cell_follows_from(world_of):
    world = world_of(judged_by("accuracy"))
    world.deliver(range(3))
    world.replay("by_amount")
    assert None not in cells(world, "accuracy").values()
    content = judged_by("accuracy")
    content["evaluation"]["min_samples"] = 1000
    again(world, content)
    assert set(cells(world, "accuracy").values()) == {None}


def test_a_file_that_two_runs_share_is_there_for_one_when_the_other_lost_it(world_of):
    world = world_of(judged_by("accuracy"))
    world.deliver(range(3))
    world.replay("by_amount")
    before = cells(world, "accuracy")
    first = world.run("by_amount", "replay")
    again(world, judged_by("accuracy", "brier"))
    second = world.run("by_amount", "replay")
    with world.platform.transaction() as conn:
        for trigger in world.triggers(first.id, "trained"):
            for file in list_predictions(conn, trigger.id):
                (world.platform.home / file.path).unlink()
        conn.execute(sa.delete(evaluation))
    for trigger in world.triggers(second.id, "trained"):
        assert judged_again(world, trigger.partition_key)
    assert cells(world, "accuracy") == before


def test_after_a_deletion_only_the_intervals_it_was_in_are_computed(world_of, counted):
    world = world_of(judged_by(SIZE))
    world.deliver(range(6))
    world.replay("by_amount")
    trigger = world.triggers(world.run("by_amount", "replay").id, "trained")[0]
    before = cells(world, SIZE)
    counted.clear()
    delete(world, [2 << 32 | 5])
    assert judged_again(world, trigger.partition_key)
    [size] = counted
    changed = {key: value for key, value in cells(world, SIZE).items() if before[key] != value}
    assert [(key[0], f"{key[1]:%d}", value) for key, value in changed.items()] == [(trigger.ordinal, "03", size)]


def test_a_model_that_became_another_one_is_predicted_and_scored_anew(world_of):
    world = world_of(judged_by("accuracy", "brier"))
    world.deliver(range(5))
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    with world.platform.transaction() as conn:
        first, second = list_models(conn, run.id)
        conn.execute(sa.update(model).where(model.c.trigger_id == first.trigger_id).values(hash=second.hash))
    due, *_ = triggers_to_evaluate(world.platform, run)
    assert due.id == first.trigger_id
    assert judged_again(world, due.partition_key)
    judged_again(world, world.triggers(run.id, "trained")[1].partition_key)
    with world.platform.transaction() as conn:
        found = [list_evaluations(conn, run.id, trigger_id) for trigger_id in (first.trigger_id, second.trigger_id)]
    values = [[(cell.interval_start, cell.metric, cell.value) for cell in each] for each in found]
    assert values[0] == values[1]


def test_cells_of_before_they_had_an_address_are_scored_again(world_of):
    world = world_of(judged_by("accuracy"))
    world.deliver(range(4))
    world.replay("by_amount")
    before = cells(world, "accuracy")
    with world.platform.transaction() as conn:
        conn.execute(sa.update(evaluation).values(address="", value=-1.0))
    again(world, judged_by("accuracy"))
    assert cells(world, "accuracy") == before
