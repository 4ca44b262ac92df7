"""Cells estimated without labels: beside the scores, from calibration samples alone, and in every picture."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.catalog.results.evaluations import EvaluationRow, list_evaluations
from modyn_dagster.catalog.results.models import mark_models
from modyn_dagster.catalog.results.predictions import list_predictions
from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.data.split import CALIBRATE
from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation import Interval, Predictions, read_predictions
from modyn_dagster.evaluation.label_free.estimator import Estimator
from modyn_dagster.keys import KeyRange
from modyn_dagster.pipeline.context import TriggerContext, context_of
from modyn_dagster.pipeline.measure.feature_extractor import BlockCache, FeatureExtractor
from modyn_dagster.pipeline.models import predictor_of
from modyn_dagster.pipeline.stages.evaluation.cells.estimates import calibration_of, estimated_cells
from modyn_dagster.pipeline.stages.evaluation.cells.plans import cell_plans
from modyn_dagster.pipeline.stages.evaluation.training_data import evaluation_set
from modyn_dagster.pipeline.stages.trigger_stages import evaluation_stage
from modyn_dagster.reporting.estimates import hold
from modyn_dagster.reporting.mlflow.content import DagsterRun
from modyn_dagster.reporting.mlflow.run_content import read_run
from modyn_dagster.reporting.page.records import read_report
from modyn_dagster.reporting.plots.runs import score_over_time
from modyn_dagster.reporting.plots.sketches import scores_svg
from modyn_dagster.reporting.summary import summarise_run
from modyn_dagster.reporting.tables import scores_table
from modyn_dagster.spec.tasks.metrics import ESTIMATED, name_of_estimate
from modyn_dagster.training.data import OUTPUTS
from tests.pipeline.deleting import delete
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, amount

SPLIT = {"train": 0.5, "calibrate": 0.3, "evaluate": 0.2}
TUMBLING = {"kind": "tumbling", "every": "2d", "start": "2024-01-01"}
NAMES = [name_of_estimate(metric) for metric in ESTIMATED]


def estimating(*metrics: str, **fields: Any) -> dict[str, Any]:
    return amount(
        every=40, evaluation={"intervals": TUMBLING, "metrics": [*metrics], "matrix": "full", "predictions": "exact", **fields}
    )


def cells(world: World, ordinal: int | None = None) -> list[EvaluationRow]:
    with world.platform.transaction() as conn:
        found = list_evaluations(conn, world.run("by_amount", "replay").id, subsets=True)
    return [cell for cell in found if cell.metric in NAMES and ordinal in (None, cell.ordinal)]


def context_of_first(world: World) -> TriggerContext:
    trigger = world.triggers(world.run("by_amount", "replay").id, "trained")[0]
    return context_of(world.platform, "by_amount", trigger.partition_key, world.platform.view(DATASET))


def predictions_of(world: World, context: TriggerContext) -> Predictions:
    with world.platform.transaction() as conn:
        files = list_predictions(conn, context.trigger.id)
    return Predictions.concat([read_predictions(world.platform.home / file.path, file.checksum) for file in files])


def interval_of(cell: EvaluationRow) -> Interval:
    start, end = as_datetime64(cell.interval_start), as_datetime64(cell.interval_end)
    return Interval(start, end, start)


def replayed(world_of, *pipelines, **options) -> World:
    world: World = world_of(*(pipelines or (estimating("accuracy", *NAMES),)), split=SPLIT, **options)
    world.deliver(range(6))
    world.replay("by_amount")
    return world


@pytest.mark.soak("replays")
def test_every_estimated_cell_is_that_of_the_model_calibrated_in_its_own_window(world_of):
    world = replayed(world_of)
    context, stored = context_of_first(world), predictions_of(world, context_of_first(world))
    with world.platform.transaction() as conn:
        window = find_training_set(conn, context.trigger.id)
    assert window is not None and context.model is not None
    predictor, view = predictor_of(world.platform, context.run, context.model, context.view), context.view
    keys = view.keys_on(CALIBRATE, KeyRange(window.after, window.until))
    calibrating = FeatureExtractor(predictor, "any", BlockCache()).values(view, keys, {OUTPUTS})
    predictor.close()
    assert calibrating.truth is not None
    estimator, defined = Estimator(calibrating.taps[OUTPUTS], calibrating.truth), 0
    for cell in cells(world, context.trigger.ordinal):
        inside = (stored.times >= as_datetime64(cell.interval_start)) & (stored.times < as_datetime64(cell.interval_end))
        metric = cell.metric.removeprefix("estimated_")
        estimate = estimator.estimate([metric], stored.outputs[inside])[metric]
        assert (cell.value, cell.undefined, cell.low, cell.high) == estimate
        assert cell.n_samples == inside.sum()
        defined += cell.value is not None
    assert defined == 3 * len(NAMES)


@pytest.mark.soak("replays")
@pytest.mark.parametrize("truth", [-1, 0, 1])
def test_labels_of_the_samples_that_are_estimated_change_neither_estimate_nor_address(world_of, truth):
    world = replayed(world_of)
    context, own = context_of_first(world), cells(world, 0)
    assert context.model is not None
    stored = predictions_of(world, context)
    other, intervals = replace(stored, truth=np.full(len(stored), truth)), [interval_of(cell) for cell in own]
    wanted = {("", number): {cell.metric.removeprefix("estimated_"): str(number)} for number, cell in enumerate(own)}
    results = estimated_cells(context, context.model, calibration_of(context), {"": other}, intervals, wanted)
    found = [results[str(number)] for number in range(len(own))]
    assert [(r.value, r.undefined, r.low, r.high) for r in found] == [(c.value, c.undefined, c.low, c.high) for c in own]
    data, calibration = evaluation_set(context), calibration_of(context)
    plans = [cell_plans(context, context.model, data, {"": each}, intervals, {}, calibration) for each in (stored, other)]
    estimated, measured = (
        [[p.address for p in each if (p.metric in NAMES) is chosen] for each in plans] for chosen in (True, False)
    )
    assert estimated[0] == estimated[1]
    assert measured[0] != measured[1]


@pytest.mark.soak("replays")
def test_slices_by_label_have_no_estimates_and_other_slices_do(world_of):
    world = replayed(world_of, estimating("accuracy", "estimated_accuracy", slices=["label", "x"]), attributes=["x"])
    names = {cell.subset.partition("=")[0] for cell in cells(world)}
    assert names == {"", "x"}


@pytest.mark.soak("replays")
def test_another_evaluation_estimates_nothing_again_until_a_calibration_sample_is_deleted(world_of):
    world = replayed(world_of)
    before = {cell.id: (cell.address, cell.value) for cell in cells(world, 0)}

    def evaluated_again() -> Mapping[int, tuple[str, float | None]]:
        evaluation_stage(context_of_first(world), finished=True)
        return {cell.id: (cell.address, cell.value) for cell in cells(world, 0)}

    assert evaluated_again() == before
    delete(world, calibration_of(context_of_first(world)).keys[:2].tolist())
    again = evaluated_again()
    assert again.keys() == before.keys()
    assert all(again[number][0] != before[number][0] for number in before)


@pytest.mark.soak("replays")
def test_a_model_that_retention_removed_is_not_calibrated_any_more(world_of):
    world = replayed(world_of)
    context = context_of_first(world)
    with world.platform.transaction() as conn:
        mark_models(conn, [context.trigger.id], removed=True)
    delete(world, calibration_of(context).keys[:2].tolist())
    evaluation_stage(context_of_first(world), finished=True)
    reasons = {cell.undefined for cell in cells(world, 0)}
    assert reasons == {"the model was removed from its store, so it can no longer be calibrated"}


@pytest.mark.soak("replays")
def test_estimates_stand_beside_the_scores_in_every_picture_and_are_held_against_them(world_of):
    world = replayed(world_of, estimating("accuracy", "estimated_accuracy"))
    with world.platform.transaction() as conn:
        summary = summarise_run(conn, world.run("by_amount", "replay"))
        report = read_report(conn, ["by_amount"], title="estimates")
    held = hold(summary.estimated, summary.active)
    assert held.n == len([score for score in summary.active if score.value is not None]) > 0
    both = [(e.value, s.value) for e, s in zip(summary.estimated, summary.active, strict=True)]
    assert held.distance == pytest.approx(np.mean([abs(e - s) for e, s in both if e is not None and s is not None]))
    assert f"{held.inside} of {held.n} scores in their intervals" in scores_table(summary).markdown()
    assert "currently active, estimated" in scores_svg(summary)
    labels = score_over_time(summary).axes[0].get_legend_handles_labels()[1]
    assert {"currently active, estimated", "interval of the estimate"} <= set(labels)
    assert np.isfinite(report.pipelines[0].lows["estimated_accuracy"]).any()
    _, content, _, _ = read_run(world.platform.engine, summary.run_id, DagsterRun())
    assert content.numbers["estimated/distance"] == held.distance
    assert content.numbers["estimated/held"] == held.inside / held.n


@pytest.mark.soak("replays")
def test_an_estimate_may_be_the_score_of_a_pipeline(world_of):
    world = replayed(world_of, estimating("estimated_log_loss", "log_loss", score="estimated_log_loss"))
    with world.platform.transaction() as conn:
        summary = summarise_run(conn, world.run("by_amount", "replay"))
    assert summary.metric == "estimated_log_loss"
    assert summary.mean_active is not None


def test_a_dataset_without_a_calibrate_share_is_told_what_an_estimate_needs(world_of):
    world = world_of(estimating("estimated_f1"))
    world.deliver([0])
    with pytest.raises(
        ConfigError, match=r"must leave a `calibrate` share: evaluation.metrics \(estimated_f1\) of pipeline by_amo"
    ):
        world.replay("by_amount")
    with pytest.raises(ConfigError, match="metrics"):
        world_of(estimating("estimated_brier"), split=SPLIT).replay("by_amount")
