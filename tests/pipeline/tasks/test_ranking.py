"""Pipelines that rank the results of queries: replayed, live, served and exported, and what does not go with groups."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from modyn_dagster.errors import ConfigError, TriggerFailed
from modyn_dagster.evaluation import score
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.paired.common_samples import common_samples
from modyn_dagster.pipeline.paired.named_models import named_model
from modyn_dagster.pipeline.preflight import require_runnable
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from modyn_dagster.pipeline.weights import weights_of
from modyn_dagster.serving.exporting import export_program
from modyn_dagster.serving.flavor import PyfuncModel
from modyn_dagster.serving.model_predictor import ModelPredictor
from modyn_dagster.spec.load import parse_spec
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.training import Task
from modyn_dagster.training.predictor_record import PredictorRecord
from tests.pipeline.tasks.graded import dataset, dataset_spec, deliver, learning
from tests.pipeline.tasks.stored import predictions_of, record_of
from tests.pipeline.world import World
from tests.training.table import spec_of
from tests.training.test_ranking import table as ranked_table
from tests.training.trained import trained

Worlds = Callable[..., World]

TASK = {"kind": "ranking", "group": "query"}
METRICS = ["ndcg_3", "ndcg", "reciprocal_rank", "average_precision"]
RELEVANCE = {"kind": "target", "from": {"source": "column", "column": "relevance"}}
PER_QUERY = 5
BY_GAIN = {"kind": "performance", "every": 40, "metric": "ndcg_3", "decision": {"rule": "threshold", "value": 0.9}}


def text_of(day: int) -> str:
    """Eight queries with five results each. The relevance follows a direction that turns from day to day."""
    rng = np.random.default_rng([9, day])
    begin = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=day)
    lines = ["time,x,y,query,relevance"]
    for row, (x, y) in enumerate(rng.normal(size=(8 * PER_QUERY, 2))):
        relevance = np.digitize(x * np.cos(0.3 * day) + y * np.sin(0.3 * day), [0.3, 1.0])
        time = begin + timedelta(minutes=20 * row)
        lines.append(f"{time:%Y-%m-%dT%H:%M:%S}Z,{x:.6f},{y:.6f},q{day}-{row // PER_QUERY},{relevance}")
    return "\n".join([*lines, ""])


def ranking(**fields: Any) -> dict[str, Any]:
    training = {"epochs": 30, "batch_size": 32} | fields.pop("training", {})
    return learning(TASK, fields.pop("metrics", METRICS), training=training, **fields)


@pytest.mark.soak("replays")
@pytest.mark.parametrize("name", ["mlp", "lightgbm"])
def test_live_equals_replay_where_a_trigger_watches_a_ranking(world_of: Worlds, name: str) -> None:
    content = ranking(trigger=BY_GAIN)
    if name == "lightgbm":
        pytest.importorskip("lightgbm")
        content["training"] = {"model": {"name": name, "rounds": 5}, "task": TASK, "features": ["x", "y"]}
    world = world_of(content)
    for days in ([0, 1, 2], [3, 4, 5]):
        deliver(world, days, dataset(**RELEVANCE), text_of)
        world.live_until_idle("graded")
    list(finish_live_run(world.platform, world.run("graded", "live")))
    world.replay("graded")
    live, replayed = (world.outcome(world.run("graded", mode)) for mode in ("live", "replay"))
    assert live == replayed
    assert len(live["models"]) > 1


def test_rankings_are_learnt_stored_scored_and_served(world_of: Worlds) -> None:
    content = ranking(training={"epochs": 10})
    del content["training"]["features"]
    world = world_of(content)
    deliver(world, range(3), dataset(**RELEVANCE), text_of)
    world.replay("graded")
    run, view, seen = world.run("graded", "replay"), world.platform.view("tiny"), 0
    cells = {(ordinal, start, metric): value for ordinal, start, _, metric, _, value, _ in world.outcome(run)["evaluations"]}
    assert np.mean([value for (*_, metric), value in cells.items() if metric == "ndcg" and value is not None]) > 0.7
    for model, found in predictions_of(world, "graded"):
        samples = view.reader.read(found.keys)
        assert samples.targets is not None
        np.testing.assert_array_equal(found.truth[:, 0], samples.targets)
        assert len(np.unique(found.truth[:, 1])) == len(set(samples.columns["query"]))
        assert np.isnan(found.losses).all()
        assert "query" not in str(model.architecture["features"])
        for metric in METRICS:
            assert score(metric, found.outputs, found.truth).value is not None
        seen += len(found)
    assert seen
    triggers = world.triggers(run.id, "trained")
    with pytest.raises(ConfigError, match="truth of several columns or of groups"):
        common_samples(*(named_model(world.platform, each.partition_key) for each in (triggers[1], triggers[0])))
    context = context_of(world.platform, "graded", triggers[-1].partition_key)
    assert context.model is not None
    record = record_of(context, context.model, {"x": "float64", "y": "float64"})
    predict = ModelPredictor(record, weights_of(world.platform, context.spec, context.model.hash))
    given = {"x": np.array([0.1, -1.0, 2.0]), "y": np.array([0.0, 0.5, -2.0])}
    assert predict.predict(given).shape == (3,)
    np.testing.assert_array_equal(np.asarray(PyfuncModel(predict).predict(given)).reshape(-1), predict.predict(given))


@pytest.mark.soak("screens")
def test_an_exported_program_gives_a_score_per_sample(tmp_path: Path) -> None:
    data = ranked_table()
    spec = spec_of(task=TASK, features=["x", "y"], epochs=2)
    found = trained(data, spec, task=Task("target"))
    record = PredictorRecord.of(
        spec,
        found.architecture,
        name="p",
        model="0" * 32,
        store=None,
        dtypes={"x": "float64", "y": "float64"},
        class_names=(),
        threads=1,
    )
    description = export_program(record, found.state_dict, tmp_path / "model.pt2")
    assert description["output"]["meaning"] == "values"
    rows = np.column_stack([data.columns["x"], data.columns["y"]])[:5]
    exported = torch.export.load(tmp_path / "model.pt2").module()(torch.from_numpy(rows)).detach().numpy()
    served = ModelPredictor(record, found.state_dict).predict({"x": rows[:, 0], "y": rows[:, 1]})
    np.testing.assert_allclose(exported[:, 0], served, atol=1e-6)


def test_a_row_without_a_query_ends_the_training_with_its_key(world_of: Worlds) -> None:
    world = world_of(ranking())
    deliver(world, range(3), dataset(**RELEVANCE), lambda day: text_of(day).replace(f"q{day}-3", ""))
    with pytest.raises(TriggerFailed, match=r"training\.task\.group: column 'query' of the sample with key \d+ is ''"):
        world.replay("graded")


@pytest.mark.parametrize(
    ("fields", "label", "field", "reason"),
    [
        (
            {},
            {"kind": "class", "n_classes": 3, "from": {"source": "column", "column": "relevance"}},
            "training.task.kind",
            "is for",
        ),
        (
            {},
            {"kind": "target", "from": {"source": "column", "column": "query"}},
            "training.task.group",
            "which is the relevance",
        ),
        (
            {},
            RELEVANCE | {"arrives": "later", "files": {"root": "../labels", "format": {"kind": "csv"}}},
            "training.task.group",
            "arrive later",
        ),
        ({"label_delay": {"kind": "constant", "after": "1d"}}, RELEVANCE, "label_delay", "compares the samples of a group"),
        ({"promotion": {"metric": "ndcg", "test": "block_bootstrap"}}, RELEVANCE, "promotion", "compares the samples of a group"),
        (
            {"trigger": {"kind": "detector", "every": 20, "detector": {"name": "adwin"}}},
            RELEVANCE,
            "trigger.detector.name",
            "reads one error per sample",
        ),
        (
            {"trigger": BY_GAIN | {"metric": "mse"}},
            RELEVANCE,
            "trigger.metric",
            "the task is ranking: use ndcg, ndcg_10, reciprocal_rank",
        ),
        ({"selection": {"strategy": {"kind": "gss", "n": 20}}}, RELEVANCE, "selection.strategy.kind", "compares losses"),
        ({"selection": {"strategy": {"kind": "mir", "n": 20, "k": 10}}}, RELEVANCE, "selection.strategy.kind", "compares losses"),
        ({"evaluation": {"slices": ["label"]}}, RELEVANCE, "evaluation.slices", "slice by an attribute"),
        (
            {"evaluation": {"metrics": ["torchmetrics.functional.regression:spearman_corrcoef"]}},
            RELEVANCE,
            "evaluation.metrics",
            "is given one target per sample",
        ),
        ({"metrics": ["mae"]}, RELEVANCE, "evaluation.metrics", "the task is ranking: use ndcg"),
        ({"training": {"downsampling": {"policy": "loss"}}}, RELEVANCE, "training.downsampling", "one by one"),
        ({"training": {"ranks": 2}}, RELEVANCE, "training.ranks", "use 1"),
        ({"training": {"shuffle": "blocks"}}, RELEVANCE, "training.shuffle", "shuffles groups"),
        ({"training": {"features": ["x", "query"]}}, RELEVANCE, "training.features", "is training.task.group"),
        (
            {"training": {"label_transform": {"function": "tests.training.transforming_user_code:times"}}},
            RELEVANCE,
            "training.label_transform",
            "leave it out",
        ),
    ],
)
def test_what_does_not_go_with_groups_is_refused_by_name(
    fields: dict[str, Any], label: dict[str, Any], field: str, reason: str
) -> None:
    pipeline = parse_spec(ranking(**fields), PipelineSpec, source="pipeline")
    with pytest.raises(ConfigError, match=rf"{re.escape(field)}: .*{reason}"):
        require_runnable(pipeline, dataset_spec(dataset(**label) | {"id": {"source": "column", "column": "x"}}))
