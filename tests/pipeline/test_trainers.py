"""Pipelines whose models trainers fit: replayed and live, by stored bytes, and what the library would have given."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from modyn_dagster.assets.metadata.models import model_details, model_metadata
from modyn_dagster.catalog.results.models import ModelRow, list_models
from modyn_dagster.catalog.triggers import raise_attempt
from modyn_dagster.data.samples import Samples
from modyn_dagster.errors import ConfigError
from modyn_dagster.pipeline.checks import loss_finite
from modyn_dagster.pipeline.context import TriggerContext, context_of
from modyn_dagster.pipeline.decide.attempts import claim_context
from modyn_dagster.pipeline.models import predictor_of
from modyn_dagster.pipeline.preflight import require_runnable
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run, model_stage, training_set_stage
from modyn_dagster.pipeline.weights import on_platform, weights_of
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.training import TrainingProgress
from tests.pipeline.world import World
from tests.projects.tiny import Content, amount
from tests.training.trainers.own_trainers import Means
from tests.variants import represented

pytest.importorskip("lightgbm")
pytest.importorskip("xgboost")

Worlds = Callable[..., World]

LOGISTIC = {"name": "sklearn", "estimator": "sklearn.linear_model:LogisticRegression"}
BAYES = {"name": "sklearn", "estimator": "sklearn.naive_bayes:GaussianNB"}
NEIGHBOURS = {"name": "sklearn", "estimator": "sklearn.neighbors:KNeighborsClassifier", "parameters": {"n_neighbors": 7}}
MODELS: dict[str, dict[str, Any]] = {
    "sklearn": LOGISTIC,
    "forest": {"name": "sklearn", "estimator": "sklearn.ensemble:RandomForestClassifier", "parameters": {"n_estimators": 4}},
    "lightgbm": {"name": "lightgbm", "rounds": 4, "parameters": {"min_data_in_leaf": 5}},
    "xgboost": {"name": "xgboost", "rounds": 4},
    "river": {"name": "river", "estimator": "river.linear_model:LogisticRegression"},
    "own": {"name": "trainer", "factory": f"{Means.__module__}:Means"},
}
OUTPUT_DRIFT = {
    "kind": "drift",
    "every": 40,
    "windows": {"by": "amount", "reference": 80, "current": 40},
    "features": {"of": "outputs"},
    "metrics": {"mmd": {"metric": "mmd"}},
    "decision": {"rule": "threshold", "value": 0.05},
}


def by_trainer(model: dict[str, Any], name: str = "fitted", **fields: Any) -> Content:
    training = {"model": model} | fields.pop("training", {})
    return amount(name, every=60) | {"training": training} | fields


def models_of(world: World, name: str = "fitted", mode: str = "replay") -> list[tuple[TriggerContext, ModelRow]]:
    run = world.run(name, mode)
    with world.platform.transaction() as conn:
        models = {row.ordinal: row for row in list_models(conn, run.id)}
    triggers = world.triggers(run.id, "trained")
    return [(context_of(world.platform, name, trigger.partition_key), models[trigger.ordinal]) for trigger in triggers]


def samples_of(context: TriggerContext) -> Samples:
    """The training set of a trigger, in its order."""
    assert context.training_set is not None
    keys = np.concatenate([part.keys for part in open_training_set(context, context.training_set).partitions()])
    return context.view.reader.read(keys)


def outputs_of(world: World, context: TriggerContext, model: ModelRow, samples: Samples) -> Any:
    predictor = predictor_of(world.platform, context.run, model, context.view)
    try:
        return predictor(samples)
    finally:
        predictor.close()


@represented("model", MODELS, "replays", "lightgbm")
def test_live_equals_replay_and_replayed_models_have_the_same_bytes(world_of: Worlds, model: dict[str, Any]) -> None:
    world = world_of(by_trainer(model, training={"use_previous_model": model["name"] != "sklearn"}))
    for days in ([0, 1], [2, 3]):
        world.deliver(days)
        world.live_until_idle("fitted")
    list(finish_live_run(world.platform, world.run("fitted", "live")))
    world.replay("fitted")
    live, replayed = (world.outcome(world.run("fitted", mode)) for mode in ("live", "replay"))
    assert len(live["models"]) == 2
    assert live == replayed
    assert len({row[1] for row in live["models"]}) == 2
    scores = [value for *_, metric, _, value, _ in live["evaluations"] if metric == "accuracy" and value is not None]
    assert np.mean(scores) > 0.6
    for context, row in models_of(world):
        assert row.architecture["model"]["name"] == model["name"]
        assert loss_finite(row).passed
        state = weights_of(world.platform, context.spec, row.hash)
        assert state["body.content"].dtype == torch.uint8
        samples = samples_of(context)
        assert outputs_of(world, context, row, samples).tobytes() == outputs_of(world, context, row, samples).tobytes()


def test_the_library_called_by_hand_on_a_training_set_predicts_the_same(world_of: Worlds) -> None:
    world = world_of(by_trainer(LOGISTIC, training={"standardize": False}))
    world.deliver(range(3))
    world.replay("fitted")
    found = models_of(world)
    assert len(found) == 2
    for context, row in found:
        samples = samples_of(context)
        x = np.column_stack([samples.columns["x"], samples.columns["y"]]).astype(np.float32)
        seed = seed_for(context.run.seed, "train", context.trigger.ordinal)
        by_hand = LogisticRegression(random_state=seed).fit(np.ascontiguousarray(x), samples.labels)
        expected = np.log(by_hand.predict_proba(np.ascontiguousarray(x)).astype(np.float64))
        np.testing.assert_allclose(outputs_of(world, context, row, samples), expected, rtol=1e-5, atol=1e-6)
        assert model_metadata(row)["epochs"] == 1, "a fit without rounds has a loss, and no curve"
        assert model_details(row)["architecture"]["library"]["name"] == "scikit-learn"


@represented("model", {"bayes": BAYES, "neighbours": NEIGHBOURS}, "replays", "bayes")
def test_models_of_the_sampling_paper_learn_from_a_time_biased_sample(world_of: Worlds, model: dict[str, Any]) -> None:
    strategy = {"kind": "rtbs", "n": 50, "decay": {"rate": 0.2, "per": "1d"}}
    world = world_of(by_trainer(model, selection={"window": "all", "strategy": strategy}))
    world.deliver(range(4))
    world.replay("fitted")
    found = models_of(world)
    assert [row.n_samples for _, row in found] == [50, 50]
    for context, row in found:
        samples = samples_of(context)
        accuracy = (outputs_of(world, context, row, samples).argmax(axis=1) == samples.labels).mean()
        assert accuracy > 0.7
        if model is BAYES:
            x = np.column_stack([samples.columns["x"], samples.columns["y"]])
            by_hand = GaussianNB().fit((x - x.mean(axis=0)) / x.std(axis=0), samples.labels)
            expected = by_hand.predict_proba((x - x.mean(axis=0)) / x.std(axis=0))
            np.testing.assert_allclose(np.exp(outputs_of(world, context, row, samples)), expected, atol=1e-4)


@pytest.mark.soak("replays")
def test_drift_of_a_trainers_outputs_fires_triggers(world_of: Worlds) -> None:
    world = world_of(by_trainer(LOGISTIC, trigger=OUTPUT_DRIFT, selection={"window": "all"}))
    world.deliver(range(3))
    world.deliver(range(3, 6), shift=3.0)
    world.replay("fitted")
    assert len(models_of(world)) > 1


class Killed(BaseException):
    """No error that any code of ours handles, as a kill would be."""


@represented("name", ["lightgbm", "xgboost"], "replays", "xgboost")
def test_a_fit_that_is_killed_begins_again_and_gives_the_same_model(world_of: Worlds, name: str) -> None:
    world = world_of(by_trainer(MODELS[name]), by_trainer(MODELS[name], "undisturbed"))
    world.deliver([0, 1])
    trigger = world.tick("fitted").train
    assert trigger is not None

    def killed(progress: TrainingProgress) -> None:
        if progress.step == 3:
            raise Killed

    context = training_set_stage(claim_context(world.platform, trigger, "first")).context
    with pytest.raises(Killed):
        model_stage(context, killed)
    with world.platform.transaction() as conn:
        raise_attempt(conn, context.trigger, "its run was killed")
    again = context_of(world.platform, "fitted", trigger.partition_key).trigger
    world.train("fitted", again, "second")
    whole = world.tick("undisturbed").train
    assert whole is not None
    world.train("undisturbed", whole)
    keys = {"fitted": trigger.partition_key, "undisturbed": whole.partition_key}
    models = [context_of(world.platform, pipeline, key).model for pipeline, key in keys.items()]
    assert models[0] is not None and models[1] is not None
    assert models[0].hash == models[1].hash


@pytest.mark.soak("replays")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_is_stored_as_its_provenance_is_fitted_again(world_of: Worlds, name: str) -> None:
    world = world_of(by_trainer(MODELS[name], model_store={"strategy": "provenance"}), by_trainer(MODELS[name], "whole"))
    world.deliver(range(3))
    world.replay("fitted")
    world.replay("whole")
    found = models_of(world)
    assert len(found) == 2
    for (context, row), (other, same) in zip(found, models_of(world, "whole"), strict=True):
        assert row.hash == same.hash
        with on_platform(world.platform):
            again = world.platform.models_of(context.spec).load(row.hash, retrain=True)
        expected = weights_of(world.platform, other.spec, same.hash)
        assert {key: tensor.numpy().tobytes() for key, tensor in again.items()} == {
            key: tensor.numpy().tobytes() for key, tensor in expected.items()
        }


def test_a_pipeline_that_a_trainer_cannot_run_is_refused_before_it_starts(world_of: Worlds) -> None:
    world = world_of(by_trainer(LOGISTIC, training={"epochs": 2}))
    project = world.platform.project
    with pytest.raises(ConfigError, match=r"training\.epochs: belongs to the training loop, and a trainer \(sklearn\) has none"):
        require_runnable(project.pipelines["fitted"], project.datasets["tiny"])
