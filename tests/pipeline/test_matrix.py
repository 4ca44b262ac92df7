"""Cells of the matrix: the ones that are computed, the predictions they come from, and nothing computed twice."""

import sys
import types
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.catalog.results.evaluations import EvaluationRow, evaluation, list_evaluations
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.evaluation import currently_active, currently_trained, generate_intervals, read_predictions, score
from modyn_dagster.pipeline.context import context_of, trained_contexts
from modyn_dagster.pipeline.stages.evaluation.evaluation_matrix import with_full_matrix
from modyn_dagster.pipeline.stages.trigger_stages import evaluation_stage
from modyn_dagster.reporting.summary import summarise_run
from tests.pipeline.pending import triggers_to_evaluate
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, amount

SLIDING = {"kind": "sliding", "every": "1d", "length": "3d", "anchor": "center"}


def evaluated(intervals: dict[str, Any] = SLIDING, matrix: str = "full", **fields: Any) -> dict[str, Any]:
    evaluation = {"intervals": intervals, "metrics": ["accuracy", "brier"], "matrix": matrix, "predictions": "exact"}
    return amount(evaluation=evaluation | fields)


def cells_of(world: World) -> dict[tuple[Any, ...], float | None]:
    run = world.run("by_amount", "replay")
    with world.platform.transaction() as conn:
        return {(c.ordinal, c.interval_start, c.interval_end, c.metric): c.value for c in list_evaluations(conn, run.id)}


def predicted(world: World) -> int:
    """Forward passes: samples times models."""
    run = world.run("by_amount", "replay")
    with world.platform.transaction() as conn:
        return sum(f.n_samples for t in world.triggers(run.id, "trained") for f in list_predictions(conn, t.id))


def test_overlapping_intervals_are_judged_from_one_pass_per_model(world_of):
    """Each cell is the metric of the samples of its interval, and a model has seen each sample once, not once per interval."""
    world = world_of(evaluated())
    world.deliver(range(6))
    world.replay("by_amount")
    run = world.run("by_amount", "replay")
    found = cells_of(world)
    with world.platform.transaction() as conn:
        models = list_models(conn, run.id)
        files = {model.ordinal: list_predictions(conn, model.trigger_id) for model in models}
    assert predicted(world) == len(models) * 240
    for ordinal, [file] in files.items():
        stored = read_predictions(world.platform.home / file.path, file.checksum)
        intervals = generate_intervals(SLIDING, stored.times.min(), stored.times.max() + np.timedelta64(1, "us"), cut=False)
        mine = {key: value for key, value in found.items() if key[0] == ordinal}
        assert len(mine) == 2 * len(intervals)
        for (_, start, end, metric), value in mine.items():
            inside = (stored.times >= as_datetime64(start)) & (stored.times < as_datetime64(end))
            assert value == score(metric, stored.outputs[inside], stored.truth[inside]).value


@pytest.mark.soak("replays")
@pytest.mark.parametrize(
    ("matrix", "composites"),
    [("active", [currently_active]), ("trained", [currently_trained]), ("composite", [currently_active, currently_trained])],
)
def test_part_of_the_matrix_has_the_cells_of_its_composites_and_needs_fewer_predictions(world_of, matrix, composites):
    whole = world_of(evaluated())
    whole.deliver(range(6))
    whole.replay("by_amount")
    everything, passes = cells_of(whole), predicted(whole)
    run = whole.run("by_amount", "replay")
    with whole.platform.transaction() as conn:
        models = list_models(conn, run.id)
    ends = np.array([as_datetime64(model.train_end) for model in models])
    part = world_of(evaluated(matrix=matrix))
    part.deliver(range(6))
    part.replay("by_amount")
    expected = {}
    for key, value in everything.items():
        start, end = as_datetime64(key[1]), as_datetime64(key[2])
        chosen = [composite(ends, np.array([start + (end - start) // 2]))[0] for composite in composites]
        if any(index >= 0 and models[index].ordinal == key[0] for index in chosen):
            expected[key] = value
    assert cells_of(part) == expected
    assert 0 < predicted(part) < passes


def test_a_model_predicts_only_what_composite_scores_need_unless_the_spec_asks_for_more(world_of):
    content = evaluated(matrix="composite")
    del content["evaluation"]["matrix"]
    world = world_of(content)
    assert world.platform.pipeline("by_amount").evaluation.matrix == "composite"


@pytest.mark.soak("replays")
def test_composite_scores_are_those_of_the_full_matrix(world_of):
    series = []
    for matrix in ("full", "composite"):
        world = world_of(evaluated(matrix=matrix))
        world.deliver(range(6))
        world.replay("by_amount")
        with world.platform.transaction() as conn:
            summary = summarise_run(conn, world.run("by_amount", "replay"))
        series.append((summary.active, summary.trained, summary.mean_active))
    assert series[0] == series[1]


@pytest.mark.soak("replays")
def test_the_full_matrix_can_be_asked_for_afterwards_and_stays(world_of):
    whole = world_of(evaluated(slices=["label"]))
    whole.deliver(range(6))
    whole.replay("by_amount")
    everything, slices = cells_of(whole), len(subsets_of_run(whole))
    part = world_of(evaluated(matrix="composite", slices=["label"]))
    part.deliver(range(6))
    part.replay("by_amount")
    assert len(cells_of(part)) < len(everything)
    run = part.run("by_amount", "replay")
    for change in (with_full_matrix, lambda context: context):
        for context in trained_contexts(part.platform, run, part.platform.view(DATASET)):
            evaluation_stage(change(context), finished=True)
        assert cells_of(part) == everything
        assert len(subsets_of_run(part)) == slices > len(everything)


def subsets_of_run(world: World) -> list[EvaluationRow]:
    run = world.run("by_amount", "replay")
    with world.platform.transaction() as conn:
        return [c for t in world.triggers(run.id, "trained") for c in list_evaluations(conn, run.id, t.id, subsets=True)]


@pytest.mark.soak("replays")
def test_intervals_at_offsets_of_a_model_are_all_judged(world_of):
    offsets = {"kind": "offsets", "offsets": ["-inf", 0, "1d", "inf"]}
    found = []
    for matrix in ("full", "composite"):
        world = world_of(evaluated(offsets, matrix=matrix))
        world.deliver(range(5))
        world.replay("by_amount")
        found.append(cells_of(world))
    assert found[0] == found[1] != {}


def test_lazy_judges_nothing_until_it_is_asked(world_of):
    world = world_of(evaluated(matrix="lazy"))
    world.deliver(range(5))
    world.replay("by_amount")
    run = world.run("by_amount", "replay")
    assert cells_of(world) == {}
    assert predicted(world) == 0
    assert triggers_to_evaluate(world.platform, run) == []
    trigger = world.triggers(run.id, "trained")[0]
    context = context_of(world.platform, "by_amount", trigger.partition_key)
    evaluation_stage(replace(context, view=world.platform.view(DATASET)), finished=True)
    assert {key[0] for key in cells_of(world)} == {trigger.ordinal}
    assert predicted(world) == 200


def test_offsets_are_judged_with_their_own_model_alone(world_of):
    world = world_of(evaluated({"kind": "offsets", "offsets": ["-inf", 0, "1d", "inf"]}))
    world.deliver(range(5))
    world.replay("by_amount")
    run = world.run("by_amount", "replay")
    with world.platform.transaction() as conn:
        models = list_models(conn, run.id)
    for model in models:
        starts = {key[1] for key in cells_of(world) if key[0] == model.ordinal}
        assert model.train_start in starts
    assert len(cells_of(world)) == len({key[:3] for key in cells_of(world)}) * 2


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the intervals that the metric ``counting_metrics:size`` has been computed on."""
    sizes: list[int] = []

    def size(outputs: Any, truth: Any) -> float:
        sizes.append(len(truth))
        return float(len(truth))

    module = types.ModuleType("counting_metrics")
    module.__dict__["size"] = size
    monkeypatch.setitem(sys.modules, "counting_metrics", module)
    return sizes


def test_only_missing_cells_are_computed(world_of, counted):
    world = world_of(evaluated(metrics=["counting_metrics:size", "accuracy"]))
    world.deliver(range(5))
    world.replay("by_amount")
    before = cells_of(world)
    assert len(counted) == sum(key[3] == "counting_metrics:size" and value is not None for key, value in before.items())
    counted.clear()
    world.replay("by_amount")
    assert counted == []
    start = next(iter(before))[1]
    with world.platform.transaction() as conn:
        conn.execute(sa.delete(evaluation).where(evaluation.c.metric == "accuracy"))
    world.replay("by_amount")
    assert counted == []
    with world.platform.transaction() as conn:
        gone = (evaluation.c.metric == "counting_metrics:size") & (evaluation.c.interval_start == start)
        conn.execute(sa.delete(evaluation).where(gone))
    world.replay("by_amount")
    assert len(counted) == len({key[0] for key in before})
    assert cells_of(world) == before


@pytest.mark.soak("replays")
def test_cells_of_a_metric_whose_code_has_changed_are_computed_anew_and_no_others(world_of, monkeypatch):
    module = types.ModuleType("changing_metrics")
    monkeypatch.setitem(sys.modules, "changing_metrics", module)
    module.__dict__["judged"] = lambda outputs, truth: 1.0
    world = world_of(evaluated(metrics=["changing_metrics:judged", "accuracy"]))
    world.deliver(range(5))
    world.replay("by_amount")
    before = cells_of(world)
    module.__dict__["judged"] = lambda outputs, truth: 2.0
    world.replay("by_amount")
    changed = {key: 2.0 if key[3] != "accuracy" and value is not None else value for key, value in before.items()}
    assert cells_of(world) == changed != before
    module.__dict__["judged"] = lambda outputs, truth: 1.0  # as it was
    world.replay("by_amount")
    assert cells_of(world) == before


def test_a_live_pipeline_finds_out_that_a_metric_has_other_code(world_of, monkeypatch):
    module = types.ModuleType("renewed_metrics")
    monkeypatch.setitem(sys.modules, "renewed_metrics", module)
    module.__dict__["judged"] = lambda outputs, truth: 1.0
    world = world_of(evaluated(metrics=["renewed_metrics:judged"]))
    world.deliver(range(5))
    world.live_until_idle("by_amount")
    run = world.run("by_amount", "live")
    for trigger in triggers_to_evaluate(world.platform, run):
        evaluation_stage(
            context_of(world.platform, run.pipeline, trigger.partition_key, world.platform.view(DATASET)), finished=False
        )
    assert triggers_to_evaluate(world.platform, run) == []
    module.__dict__["judged"] = lambda outputs, truth: 2.0
    due = triggers_to_evaluate(world.platform, run)
    with world.platform.transaction() as conn:
        assert [trigger.id for trigger in due] == [model.trigger_id for model in list_models(conn, run.id)]
    for trigger in due:
        cells = evaluation_stage(
            context_of(world.platform, run.pipeline, trigger.partition_key, world.platform.view(DATASET)), finished=False
        ).row
        assert isinstance(cells, list)
        assert {cell.value for cell in cells} == {2.0}
    assert triggers_to_evaluate(world.platform, run) == []
    # What cannot be imported any more cannot be judged anew either.
    del module.__dict__["judged"]
    assert triggers_to_evaluate(world.platform, run) == []
