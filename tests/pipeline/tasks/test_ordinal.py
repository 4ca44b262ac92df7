"""Pipelines that learn classes with an order: replayed and live, and what does not go with an order."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.metrics.losses import ranked_probability_scores
from modyn_dagster.pipeline.preflight import require_runnable
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from modyn_dagster.spec.load import parse_spec
from modyn_dagster.spec.pipeline import PipelineSpec
from tests.pipeline.tasks.graded import GRADES, dataset, dataset_spec, deliver, learning
from tests.pipeline.tasks.stored import predictions_of
from tests.pipeline.world import World

Worlds = Callable[..., World]

ORDINAL = {"kind": "ordinal"}
METRICS = ["rank_mae", "quadratic_kappa", "ranked_probability", "accuracy"]
BY_RANK = {"kind": "performance", "every": 40, "metric": "rank_mae", "decision": {"rule": "threshold", "value": 0.35}}
NUMBERED = {"kind": "class", "from": {"source": "column", "column": "grade"}}


@pytest.mark.soak("replays")
def test_live_equals_replay_where_a_trigger_watches_the_distance_of_ranks(world_of: Worlds) -> None:
    world = world_of(learning(ORDINAL, METRICS, trigger=BY_RANK))
    for days in ([0, 1, 2], [3, 4]):
        deliver(world, days, dataset())
        world.live_until_idle("graded")
    list(finish_live_run(world.platform, world.run("graded", "live")))
    world.replay("graded")
    live, replayed = (world.outcome(world.run("graded", mode)) for mode in ("live", "replay"))
    assert live == replayed
    assert len(live["models"]) > 1


def test_models_of_an_order_are_scored_and_stored_with_their_losses_and_a_gate_decides_by_them(world_of: Worlds) -> None:
    promotion = {"metric": "ranked_probability", "min_samples": 20}
    world = world_of(learning(ORDINAL, METRICS, promotion=promotion))
    deliver(world, range(5), dataset())
    world.replay("graded")
    cells = world.outcome(world.run("graded", "replay"))["evaluations"]
    values = {name: [v for *_, metric, _, v, _ in cells if metric == name and v is not None] for name in METRICS}
    assert np.mean(values["rank_mae"]) < 0.8
    assert np.mean(values["quadratic_kappa"]) > 0.5
    for model, found in predictions_of(world, "graded"):
        assert model.architecture["learns"] == ORDINAL
        assert found.outputs.shape[1] == len(GRADES)
        np.testing.assert_array_equal(found.losses, ranked_probability_scores(found.outputs, found.truth).astype(np.float32))


def refusal(fields: dict[str, Any], label: dict[str, Any]) -> str:
    pipeline = parse_spec(learning(ORDINAL, METRICS, **fields), PipelineSpec, source="pipeline")
    found = dataset_spec(dataset(**label))
    with pytest.raises(ConfigError) as refused:
        require_runnable(pipeline, found)
    return str(refused.value)


@pytest.mark.parametrize(
    ("fields", "label", "rule"),
    [
        ({}, NUMBERED, "training.task.kind: needs the order of the classes"),
        ({}, NUMBERED | {"n_classes": 2}, "training.task.kind: needs 3 classes or more, and there are 2"),
        (
            {"training": {"label_transform": {"positive": ["top"]}}},
            {},
            "training.task.kind: needs 3 classes or more, and there are 2",
        ),
        ({"training": {"loss": "mse"}}, {}, "training.loss: the task is ordinal: use ranked_probability or cross_entropy"),
        ({"evaluation": {"metrics": ["mae"]}}, {}, "evaluation.metrics: the task is ordinal: use accuracy"),
        ({"trigger": BY_RANK | {"metric": "mse"}}, {}, "trigger.metric: the task is ordinal: use accuracy"),
        (
            {"training": {"downsampling": {"policy": "dlis"}}},
            {},
            "training.downsampling.policy: draws by gradients of the cross-entropy",
        ),
    ],
)
def test_what_does_not_go_with_an_order_is_refused_by_name(fields: dict[str, Any], label: dict[str, Any], rule: str) -> None:
    found = refusal(fields, label)
    field, _, reason = rule.partition(": ")
    assert field in found
    assert reason in found


def test_an_order_needs_classes() -> None:
    pipeline = parse_spec(learning(ORDINAL, METRICS), PipelineSpec, source="pipeline")
    target = dataset_spec(dataset(kind="target", **{"from": {"source": "column", "column": "distance"}}))
    with pytest.raises(ConfigError, match=r"training\.task\.kind.*is for a class; the dataset's label is a target"):
        require_runnable(pipeline, target)


def test_groups_of_classes_have_the_order_in_which_they_are_named() -> None:
    transform = {"label_transform": {"groups": [["low"], ["middle", "high"], ["top"]]}}
    pipeline = parse_spec(learning(ORDINAL, METRICS, training=transform), PipelineSpec, source="pipeline")
    require_runnable(pipeline, dataset_spec(dataset()))
