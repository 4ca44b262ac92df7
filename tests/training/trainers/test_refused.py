"""Pipelines of trainers that cannot run: found by ``check``, by field and with the reason."""

import sys
from typing import Any

import pytest
from pydantic import ValidationError

from modyn_dagster.errors import ConfigError, MissingExtra
from modyn_dagster.imports import CodeSources
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.load import parse_spec
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.trainers.protocol import LearningTask
from modyn_dagster.training.trainers.refusals import loop_errors, trainer_errors
from modyn_dagster.training.trainers.registry import build_trainer
from modyn_dagster.training.user_code import import_paths
from tests.training.trainers.fitted import CLASSIFIERS, estimator, river, sklearn
from tests.training.trainers.own_trainers import Even
from tests.training.trainers.test_own import own
from tests.variants import represented

LOGISTIC = sklearn("linear_model:LogisticRegression")
NEIGHBOURS = sklearn("neighbors:KNeighborsClassifier")
DRIFT = {
    "kind": "drift",
    "every": 40,
    "windows": {"by": "amount", "reference": 80, "current": 40},
    "metrics": {"mmd": {"metric": "mmd"}},
    "decision": {"rule": "threshold", "value": 0.05},
}


def dataset(kind: str = "class") -> DatasetSpec:
    label = {"kind": kind, "from": {"source": "column", "column": "label"}}
    fields = {"root": "../data", "format": {"kind": "csv"}, "time": {"source": "column", "column": "time"}}
    return DatasetSpec.model_validate({"name": "d", "label": label, **fields})


def pipeline(model: dict[str, Any], **fields: Any) -> PipelineSpec:
    training = {"model": model} | fields.pop("training", {})
    content = {
        "name": "p",
        "dataset": "d",
        "trigger": {"kind": "amount", "every": 10},
        "training": training,
        "evaluation": {"intervals": {"kind": "tumbling", "every": "1d"}},
    }
    return parse_spec(content | fields, PipelineSpec, source="pipeline p")


def found(model: dict[str, Any], kind: str = "class", **fields: Any) -> list[str]:
    return [str(error) for error in trainer_errors(pipeline(model, **fields), dataset(kind))]


LOOP: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 16,
    "loss": "cross_entropy",
    "optimizer": {"name": "sgd", "lr": 0.5},
    "accumulate": 2,
    "clip": {"norm": 1.0},
    "ema": {"decay": 0.9},
    "compile": {},
    "max_steps": 4,
    "max_samples": 5000,
    "early_stopping": {"patience": 2},
    "ranks": 2,
    "shuffle": False,
    "block_size": 9,
    "drop_last": True,
    "downsampling": {"policy": "loss", "ratio": 0.5},
    "initial_weights": "weights.safetensors",
    "deterministic": False,
    "checkpoint": {"steps": 5},
    "transforms": [{"function": "tests.training.transforming_user_code:times"}],
    "precision": "bf16-mixed",
    "device": "cuda",
}


@pytest.mark.parametrize("field", LOOP)
def test_fields_of_the_loop_are_refused_by_name(field: str) -> None:
    spec = TrainingSpec.model_validate({"model": LOGISTIC, field: LOOP[field]})
    [error] = loop_errors(spec, source="pipeline p")
    assert error.field == f"training.{field}"
    assert "a trainer (sklearn)" in error.rule
    assert [
        *loop_errors(spec.model_copy(update={"model": TrainingSpec.model_validate({"model": {"name": "mlp"}}).model}), source="p")
    ] == []


def test_values_of_the_loop_that_are_the_default_may_be_given() -> None:
    assert found(LOGISTIC, training={"epochs": 1, "batch_size": 256, "checkpoint": None, "shuffle": True}) == []


def test_all_fields_are_named_at_once() -> None:
    errors = found(LOGISTIC, training={"epochs": 2, "ranks": 2})
    assert [error.split(":")[1].strip() for error in errors] == ["training.epochs", "training.ranks"]


@pytest.mark.parametrize(
    ("model", "fields", "sentence"),
    [
        (LOGISTIC, {"trigger": DRIFT}, "trigger.features.of: a trainer (sklearn) has no layers: use columns or outputs"),
        (
            LOGISTIC,
            {"selection": {"strategy": {"kind": "gss", "n": 10}}},
            "selection.strategy.kind: a trainer (sklearn) has no layers whose gradients the strategy compares",
        ),
        (
            LOGISTIC,
            {"selection": {"strategy": {"kind": "similar_to_unlabelled", "size": 5}}},
            "selection.strategy.kind: a trainer (sklearn) has no layers whose embeddings the strategy compares",
        ),
        (
            NEIGHBOURS,
            {"training": {"use_previous_model": True}},
            "training.use_previous_model: sklearn.neighbors:KNeighborsClassifier cannot continue an earlier model",
        ),
        (own("Fixed"), {"training": {"use_previous_model": True}}, "own_trainers:Fixed cannot continue an earlier model"),
        (
            NEIGHBOURS,
            {"selection": {"strategy": {"kind": "balanced", "size": 5}}},
            "selection.strategy.weights: gives samples weights, and sklearn.neighbors:KNeighborsClassifier takes none",
        ),
        (
            river("naive_bayes:GaussianNB"),
            {"selection": {"strategy": {"kind": "uniform_reservoir", "n": 9, "weights": "unbiased"}}},
            "selection.strategy.weights: gives samples weights, and river.naive_bayes:GaussianNB takes none",
        ),
        (own("Drawing"), {}, "training.model: is not deterministic: two fits to the same 100 rows gave different models"),
        (own("Forgetful"), {}, "training.model: to_bytes of a model that from_bytes read gives other bytes"),
        (own("Pickled"), {}, "training.model: its model file is a pickle (protocol 4), which would run code"),
        (sklearn("cluster:KMeans"), {}, "is no classifier, and the label to learn is a class"),
        (sklearn("linear_model:Lasso"), {}, "is no classifier, and the label to learn is a class"),
        (
            sklearn("datasets:make_blobs"),
            {},
            "training.model.estimator: must be a class that derives from sklearn's BaseEstimator",
        ),
        (
            sklearn("linear_model:LogisticRegression", slope=2),
            {},
            "sklearn.linear_model:LogisticRegression refused them: TypeError",
        ),
        (
            sklearn("linear_model:LogisticRegression", C=-1),
            {"training": {"features": ["a", "b"]}},
            "training.model: fails on 100 made-up rows of 2 columns: InvalidParameterError: The 'C' parameter",
        ),
        (
            {"name": "lightgbm", "parameters": {"num_threads": 4}},
            {},
            "parameters.num_threads: comes from `threads` of the pipeline",
        ),
        (
            {"name": "lightgbm", "parameters": {"forcedsplits_filename": "x"}},
            {},
            "parameters.forcedsplits_filename: names a file",
        ),
        (
            {"name": "lightgbm", "parameters": {"objective": "l2"}},
            {},
            "parameters.objective: the label is a class: use one of binary",
        ),
        ({"name": "xgboost", "parameters": {"seed": 1}}, {}, "parameters.seed: comes from the `seed` of the pipeline"),
        ({"name": "xgboost", "parameters": {"n_estimators": 1}}, {}, "parameters.n_estimators: is the field `rounds`"),
        ({"name": "xgboost", "parameters": {"objective": "multi:softmax"}}, {}, "parameters.objective: the label is a class"),
        ({"name": "xgboost", "parameters": {"device": "cuda"}}, {}, "parameters.device: is not possible"),
        (sklearn("ensemble:RandomForestClassifier", n_jobs=2), {}, "parameters.n_jobs: comes from `threads` of the pipeline"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_run_is_refused_by_field(model: dict[str, Any], fields: dict[str, Any], sentence: str) -> None:
    [error] = found(model, **fields)
    assert sentence in error


@represented("model", CLASSIFIERS, "laws-training", "sklearn", "lightgbm", "river pipeline")
def test_sound_trainers_pass_their_trial(model: dict[str, Any]) -> None:
    assert found(model) == []


@pytest.mark.parametrize("name", ["lightgbm", "xgboost"])
def test_boosting_passes_continued_weighted_and_with_targets(name: str) -> None:
    weighted = {"strategy": {"kind": "balanced", "size": 5}}
    assert found({"name": name}, training={"use_previous_model": True}, selection=weighted) == []
    assert found({"name": name}, "target") == []


def test_a_fit_that_may_need_more_columns_than_are_made_up_is_left_to_the_data() -> None:
    steps = [
        ["few", estimator("sklearn.decomposition:PCA", n_components=90)],
        ["bayes", estimator("sklearn.naive_bayes:GaussianNB")],
    ]
    assert found(sklearn("pipeline:Pipeline", steps=steps)) == []


def test_an_estimator_that_weighs_when_it_is_fitted_alone_cannot_continue_a_weighted_set() -> None:
    model = {"name": "sklearn", "estimator": f"{Even.__module__}:Even"}
    weighted = {"strategy": {"kind": "balanced", "size": 5}}
    assert found(model, selection=weighted) == []
    [error] = found(model, selection=weighted, training={"use_previous_model": True})
    assert f"selection.strategy.weights: gives samples weights, and {Even.__module__}:Even takes none" in error


def test_other_models_are_not_looked_at() -> None:
    assert found({"name": "mlp"}, training={"epochs": 3}, trigger=DRIFT) == []


def test_estimators_among_parameters_come_from_where_estimators_may(tmp_path: Any) -> None:
    model = sklearn(
        "pipeline:Pipeline", steps=[["a", estimator("sklearn.preprocessing:StandardScaler")], ["b", estimator("os:system")]]
    )
    with pytest.raises(ConfigError, match=r"steps.1.1.estimator: 'os:system' belongs to the standard library"):
        pipeline(model)
    foreign = sklearn("pipeline:Pipeline", steps=[["a", estimator("pandas:DataFrame", data=estimator("os:system"))]])
    with pytest.raises(
        ValidationError, match=r"steps.0.1.estimator: 'pandas:DataFrame' package 'pandas' is no code of this project"
    ):
        TrainingSpec.model_validate({"model": foreign}, context=CodeSources(tmp_path))


def test_the_code_of_a_trainer_is_listed() -> None:
    spec = TrainingSpec.model_validate({"model": CLASSIFIERS["pipeline"]})
    assert dict(import_paths(spec)) == {
        "training.model.estimator": "sklearn.pipeline:Pipeline",
        "training.model.parameters.steps.0.1.estimator": "sklearn.preprocessing:StandardScaler",
        "training.model.parameters.steps.1.1.estimator": "sklearn.naive_bayes:GaussianNB",
    }
    assert dict(import_paths(TrainingSpec.model_validate({"model": own("Means")}))) == {
        "training.model.factory": "tests.training.trainers.own_trainers:Means"
    }


@pytest.mark.parametrize(
    ("model", "package", "extra"),
    [
        ({"name": "lightgbm"}, "lightgbm", "lightgbm"),
        ({"name": "xgboost"}, "xgboost", "xgboost"),
        (LOGISTIC, "scikit-learn", "sklearn"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_library_that_is_not_installed_is_one_sentence(
    model: dict[str, Any], package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sklearn.base import BaseEstimator  # noqa: F401 - found while the path is whole

    folders = [folder for folder in sys.path if "site-packages" not in folder]
    monkeypatch.setattr(sys, "path", folders)
    task = LearningTask("class", ("a",), 2, 1, "pipeline p")
    with pytest.raises(
        MissingExtra, match=rf"needs {package}, which is not installed; run `pip install 'modyn-dagster\[{extra}\]'`"
    ):
        build_trainer(_spec(model), task)


def _spec(model: dict[str, Any]) -> Any:
    from modyn_dagster.spec.learning.trainers import LightGBMSpec, SklearnSpec, XGBoostSpec

    kinds: dict[str, Any] = {"lightgbm": LightGBMSpec, "xgboost": XGBoostSpec, "sklearn": SklearnSpec}
    return kinds[model["name"]].model_construct(**{"parameters": {}, "rounds": 1} | model)
