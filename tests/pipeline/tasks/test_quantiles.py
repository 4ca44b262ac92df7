"""Pipelines that learn quantiles of a target: replayed, live, served and exported, and what does not go with quantiles."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.metrics.losses import pinball_losses
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.preflight import require_runnable
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from modyn_dagster.pipeline.weights import weights_of
from modyn_dagster.serving.exporting import export_program
from modyn_dagster.serving.flavor import PyfuncModel
from modyn_dagster.serving.model_predictor import ModelPredictor
from modyn_dagster.spec.load import parse_spec
from modyn_dagster.spec.pipeline import PipelineSpec
from tests.pipeline.tasks.graded import dataset, dataset_spec, deliver, learning
from tests.pipeline.tasks.stored import predictions_of, record_of
from tests.pipeline.world import World

Worlds = Callable[..., World]

LEVELS = [0.1, 0.5, 0.9]
QUANTILES = {"kind": "quantiles", "quantiles": LEVELS}
PINBALL = "pinball_q10_q50_q90"
METRICS = [PINBALL, "coverage", "interval_width"]
DISTANCE = {"kind": "target", "from": {"source": "column", "column": "distance"}}
BY_COVERAGE = {"kind": "performance", "every": 40, "metric": "coverage", "decision": {"rule": "threshold", "value": 0.7}}
BY_PINBALL = BY_COVERAGE | {"metric": PINBALL, "decision": {"rule": "threshold", "value": 0.05}}
BY_LOSS = {"kind": "detector", "every": 20, "detector": {"name": "page_hinkley", "threshold": 1.0}}
EPOCHS = {"epochs": 40}


def quantiles(**fields: Any) -> dict[str, Any]:
    training = EPOCHS | fields.pop("training", {})
    return learning(QUANTILES, fields.pop("metrics", METRICS), training=training, **fields)


@pytest.mark.soak("replays")
@pytest.mark.parametrize("trigger", [BY_COVERAGE, BY_PINBALL, BY_LOSS], ids=["coverage", "loss", "detector"])
def test_live_equals_replay_where_a_trigger_watches_quantiles(world_of: Worlds, trigger: dict[str, Any]) -> None:
    if trigger is BY_LOSS:
        pytest.importorskip("river")
    world = world_of(quantiles(trigger=trigger))
    for days in ([0, 1, 2], [3, 4]):
        deliver(world, days, dataset(**DISTANCE))
        world.live_until_idle("graded")
    list(finish_live_run(world.platform, world.run("graded", "live")))
    world.replay("graded")
    live, replayed = (world.outcome(world.run("graded", mode)) for mode in ("live", "replay"))
    assert live == replayed
    assert len(live["models"]) > 1


def test_quantiles_are_stored_in_order_with_their_losses_scored_served_and_exported(world_of: Worlds, tmp_path: Path) -> None:
    world = world_of(quantiles())
    deliver(world, range(4), dataset(**DISTANCE))
    world.replay("graded")
    run = world.run("graded", "replay")
    cells = world.outcome(run)["evaluations"]
    covered = [value for *_, metric, _, value, _ in cells if metric == "coverage" and value is not None]
    assert 0.6 < np.mean(covered) < 0.95
    for model, found in predictions_of(world, "graded"):
        assert model.architecture["learns"] == QUANTILES
        assert (np.diff(found.outputs, axis=1) >= 0).all()
        np.testing.assert_array_equal(
            found.losses, pinball_losses(found.outputs, found.truth.astype(np.float64), LEVELS).astype(np.float32)
        )
    trigger = world.triggers(run.id, "trained")[-1]
    context = context_of(world.platform, "graded", trigger.partition_key)
    assert context.model is not None
    weights = weights_of(world.platform, context.spec, context.model.hash)
    record = record_of(context, context.model, {"x": "float64", "y": "float64"})
    given = {"x": np.array([0.1, -1.0, 2.0]), "y": np.array([0.0, 0.5, -2.0])}
    served = PyfuncModel(ModelPredictor(record, weights)).predict(given)
    assert list(served.columns) == ["q0.1", "q0.5", "q0.9"]
    description = export_program(record, weights, tmp_path / "model.pt2")
    assert description["output"]["quantiles"] == LEVELS
    program = torch.export.load(tmp_path / "model.pt2").module()
    exported = program(torch.from_numpy(np.column_stack([given["x"], given["y"]])))
    np.testing.assert_allclose(exported.detach(), served.to_numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"metrics": ["mae"]}, "evaluation.metrics", "the task is quantiles: use pinball_q10_q90"),
        ({"metrics": ["pinball_q10_q90"]}, "evaluation.metrics", f"must name the quantiles of the task: {PINBALL}"),
        ({"metrics": ["coverage", PINBALL]}, "evaluation.score", f"says nothing of how good a model is by itself.*{PINBALL}"),
        (
            {"trigger": BY_COVERAGE | {"metric": "pinball_q50"}},
            "trigger.metric",
            f"must name the quantiles of the task: {PINBALL}",
        ),
        ({"trigger": BY_COVERAGE | {"metric": "mse"}}, "trigger.metric", "the task is quantiles: use pinball"),
        ({"training": {"loss": "mse"}}, "training.loss", "the task is quantiles: use pinball"),
        (
            {"training": {"downsampling": {"policy": "margin"}}},
            "training.downsampling.policy",
            "needs classes; the task is quantiles",
        ),
        (
            {"training": {"downsampling": {"policy": "loss", "schedule": [{"policy": "el2n", "from_trigger": 1}]}}},
            "training.downsampling.schedule.0.policy",
            "needs classes",
        ),
        (
            {"selection": {"strategy": {"kind": "gss", "n": 20}}},
            "selection.strategy.kind",
            "compares gradients of the squared error",
        ),
        (
            {"promotion": {"metric": "coverage", "test": "block_bootstrap"}},
            "promotion.metric",
            "says nothing of how good a model is",
        ),
        (
            {"training": {"model": {"name": "sklearn", "estimator": "sklearn.linear_model:Ridge"}, "epochs": 1}},
            "training.task.kind",
            r"needs a network, with an output for each: a trainer \(sklearn\) predicts one value",
        ),
    ],
)
def test_what_does_not_go_with_quantiles_is_refused_by_name(fields: dict[str, Any], field: str, reason: str) -> None:
    content = quantiles(**fields)
    if "model" in fields.get("training", {}):
        del content["training"]["optimizer"], content["training"]["batch_size"]
    pipeline = parse_spec(content, PipelineSpec, source="pipeline")
    with pytest.raises(ConfigError, match=rf"{re.escape(field)}: .*{reason}"):
        require_runnable(pipeline, dataset_spec(dataset(**DISTANCE)))


def test_quantiles_need_a_target() -> None:
    pipeline = parse_spec(quantiles(), PipelineSpec, source="pipeline")
    with pytest.raises(ConfigError, match=r"training\.task\.kind: is for a target; the dataset's label is a class"):
        require_runnable(pipeline, dataset_spec(dataset()))
