"""Pipelines whose truth is several columns: replayed, live and served, and what does not go with it."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from modyn_dagster.errors import ConfigError, TriggerFailed
from modyn_dagster.evaluation.metrics.losses import sample_losses
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.paired.common_samples import common_samples
from modyn_dagster.pipeline.paired.named_models import named_model
from modyn_dagster.pipeline.preflight import require_runnable
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from modyn_dagster.pipeline.weights import weights_of
from modyn_dagster.serving.flavor import PyfuncModel
from modyn_dagster.serving.model_predictor import ModelPredictor
from modyn_dagster.spec.load import parse_spec
from modyn_dagster.spec.pipeline import PipelineSpec
from tests.pipeline.tasks.graded import dataset, dataset_spec, deliver, learning
from tests.pipeline.tasks.stored import predictions_of, record_of
from tests.pipeline.world import World

Worlds = Callable[..., World]

OUTPUTS = {"kind": "multi_output", "columns": ["distance", "height"]}
FLAGS = {"kind": "multi_label", "columns": ["far", "above"]}
DISTANCE = {"kind": "target", "from": {"source": "column", "column": "distance"}}
FAR = {"kind": "class", "n_classes": 2, "from": {"source": "column", "column": "far"}}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str], dict[str, Any]]] = {
    "outputs": (
        OUTPUTS,
        DISTANCE,
        ["mae", "mse", "r2", "mae_output_1"],
        {"metric": "mae", "decision": {"rule": "threshold", "value": 0.3}},
    ),
    "labels": (
        FLAGS,
        FAR,
        ["subset_accuracy", "hamming_loss", "label_f1_micro", "label_f1_macro"],
        {"metric": "label_f1_macro", "decision": {"rule": "threshold", "value": 0.8}},
    ),
}
EPOCHS = {"epochs": 20}


@pytest.mark.soak("replays")
@pytest.mark.parametrize("case", CASES)
def test_live_equals_replay_where_a_trigger_watches_several_columns(world_of: Worlds, case: str) -> None:
    task, label, metrics, watched = CASES[case]
    trigger = {"kind": "performance", "every": 40} | watched
    world = world_of(learning(task, metrics, trigger=trigger, training=EPOCHS))
    for days in ([0, 1, 2], [3, 4]):
        deliver(world, days, dataset(**label))
        world.live_until_idle("graded")
    list(finish_live_run(world.platform, world.run("graded", "live")))
    world.replay("graded")
    live, replayed = (world.outcome(world.run("graded", mode)) for mode in ("live", "replay"))
    assert live == replayed
    assert len(live["models"]) > 1


@pytest.mark.parametrize("case", CASES)
def test_several_columns_are_learnt_stored_scored_and_served(world_of: Worlds, case: str) -> None:
    task, label, metrics, _ = CASES[case]
    content = learning(task, metrics, training=EPOCHS)
    del content["training"]["features"]
    world = world_of(content)
    deliver(world, range(4), dataset(**label))
    world.replay("graded")
    run = world.run("graded", "replay")
    cells = world.outcome(run)["evaluations"]
    values = {name: np.mean([v for *_, metric, _, v, _ in cells if metric == name and v is not None]) for name in metrics}
    assert values[metrics[0]] < 0.5 if case == "outputs" else values[metrics[0]] > 0.5
    spec = parse_spec(content, PipelineSpec, source="pipeline").training.task
    view, seen = world.platform.view("tiny"), 0
    for model, found in predictions_of(world, "graded"):
        columns = view.reader.read(found.keys).columns
        expected = np.column_stack([columns[name].astype(float) for name in task["columns"]])
        np.testing.assert_array_equal(found.truth, expected)
        np.testing.assert_array_equal(found.losses, sample_losses(found.outputs, expected, "target", spec))
        assert all(name not in str(model.architecture["features"]) for name in task["columns"])
        seen += len(found)
    assert seen
    trained = world.triggers(run.id, "trained")
    with pytest.raises(ConfigError, match="has a truth of several columns"):
        common_samples(*(named_model(world.platform, each.partition_key) for each in (trained[1], trained[0])))
    context = context_of(world.platform, "graded", trained[-1].partition_key)
    assert context.model is not None
    names = ["x", "y", *({"distance", "height", "far", "above"} - set(task["columns"]))]
    record = record_of(context, context.model, dict.fromkeys(names, "float64"))
    served_by = PyfuncModel(ModelPredictor(record, weights_of(world.platform, context.spec, context.model.hash)))
    given = {name: np.array([0.1, -1.0, 2.0]) for name in names}
    served = served_by.predict(given)
    assert list(served.columns) == task["columns"]
    if case == "labels":
        shares = served_by.predict(given, {"output": "probabilities"})
        assert ((shares > 0.5).to_numpy() == (served == 1).to_numpy()).all()


def test_a_label_that_is_neither_0_nor_1_ends_the_training_with_its_key_and_column(world_of: Worlds) -> None:
    task = {"kind": "multi_label", "columns": ["far", "distance"]}
    world = world_of(learning(task, ["hamming_loss"]))
    deliver(world, range(3), dataset(**FAR))
    with pytest.raises(
        TriggerFailed, match=r"TrainingError.*training\.task\.columns: column 'distance' of the sample with key \d+ is"
    ):
        world.replay("graded")


@pytest.mark.parametrize(
    ("task", "fields", "label", "field", "reason"),
    [
        (OUTPUTS, {}, FAR, "training.task.kind", "is for a target; the dataset's label is a class"),
        (FLAGS, {}, DISTANCE, "training.task.kind", "is for a class; the dataset's label is a target"),
        (FLAGS, {}, FAR | {"n_classes": 3}, "training.task.kind", "needs labels 0 and 1"),
        (
            OUTPUTS,
            {},
            DISTANCE | {"from": {"source": "column", "column": "height"}},
            "training.task.columns",
            "must begin with height",
        ),
        (
            OUTPUTS,
            {},
            DISTANCE | {"arrives": "later", "files": {"root": "../labels", "format": {"kind": "csv"}}},
            "training.task.columns",
            "arrive later, one per sample",
        ),
        (
            OUTPUTS,
            {"training": {"label_transform": {"function": "tests.training.transforming_user_code:times"}}},
            DISTANCE,
            "training.label_transform",
            "several",
        ),
        (OUTPUTS, {"training": {"features": ["x", "height"]}}, DISTANCE, "training.features", "is one of training.task.columns"),
        (OUTPUTS, {"training": {"ranks": 2}}, DISTANCE, "training.ranks", "the task has several columns"),
        (OUTPUTS, {"label_delay": {"kind": "constant", "after": "1d"}}, DISTANCE, "label_delay", "delays one label"),
        (OUTPUTS, {"promotion": {"metric": "mse", "bound": 9.0}}, DISTANCE, "promotion", "losses of one label per sample"),
        (
            OUTPUTS,
            {"trigger": {"kind": "detector", "every": 20, "detector": {"name": "adwin"}}},
            DISTANCE,
            "trigger.detector.name",
            "reads one error per sample",
        ),
        (
            FLAGS,
            {"selection": {"strategy": {"kind": "clib", "n": 20}}},
            FAR,
            "selection.strategy.kind",
            "compares losses or gradients",
        ),
        (
            FLAGS,
            {"trigger": {"kind": "cost", "every": 20, "signal": "misclassifications", "regret_per_training_second": 1.0}},
            FAR,
            "trigger.signal",
            "counts one class per sample",
        ),
        (FLAGS, {"evaluation": {"slices": ["label"]}}, FAR, "evaluation.slices", "slice by an attribute"),
        (
            FLAGS,
            {"training": {"loss": "cross_entropy"}},
            FAR,
            "training.loss",
            "the task is multi_label: use binary_cross_entropy",
        ),
        (
            FLAGS,
            {"evaluation": {"metrics": ["accuracy"]}},
            FAR,
            "evaluation.metrics",
            "the task is multi_label: use subset_accuracy",
        ),
        (FLAGS, {"training": {"downsampling": {"policy": "margin"}}}, FAR, "training.downsampling.policy", "needs classes"),
    ],
)
def test_what_does_not_go_with_several_columns_is_refused_by_name(
    task: dict[str, Any], fields: dict[str, Any], label: dict[str, Any], field: str, reason: str
) -> None:
    content = learning(task, CASES["outputs" if task is OUTPUTS else "labels"][2], **fields)
    pipeline = parse_spec(content, PipelineSpec, source="pipeline")
    with pytest.raises(ConfigError, match=rf"{re.escape(field)}: .*{reason}"):
        require_runnable(pipeline, dataset_spec(dataset(**label) | {"id": {"source": "column", "column": "x"}}))
