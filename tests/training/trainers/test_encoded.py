"""Trainers on columns that are encoded and imputed: the numbers of scikit-learn's own encoders, and its model of them."""

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import Task, build_predictor
from modyn_dagster.training.models.layout import Layout
from tests.training.columns.test_encoded_features import cities
from tests.training.table import Table, spec_of
from tests.training.trained import trained
from tests.training.trainers.fitted import logits, plain, previous, sklearn

FOREST = sklearn("ensemble:RandomForestClassifier", n_estimators=5, random_state=3)
COLUMNS: dict[str, Any] = {
    "features": ["city", "size"],
    "encode": {"city": {"kind": "one_hot"}},
    "impute": {"size": {"by": "median", "indicator": True}},
}
TASK = Task("class", 2, exclude=frozenset({"label"}))


def by_hand(table: Table) -> Any:
    """Inputs: a place for unknown cities, those of the training set in order, the size, and whether it was missing."""
    known = OneHotEncoder(sparse_output=False).fit_transform(table.columns["city"].reshape(-1, 1))
    sizes = SimpleImputer(strategy="median", add_indicator=True).fit_transform(table.columns["size"].reshape(-1, 1))
    return np.column_stack([np.zeros(table.n), known, sizes]).astype(np.float32)


def test_a_forest_sees_the_columns_that_scikit_learn_would_make_of_texts_and_missing_numbers() -> None:
    table = cities()
    found = trained(table, plain(FOREST, **COLUMNS), task=TASK, seed=0)
    forest = RandomForestClassifier(n_estimators=5, random_state=3).fit(by_hand(table), table.labels)
    outputs = build_predictor(found.architecture, found.state_dict, threads=1, source="p")(table.samples)
    assert outputs.tobytes() == logits(forest.predict_proba(by_hand(table))).tobytes()
    names = Layout.from_json(found.architecture["features"]).value_names()
    assert names == (*(f"city.{i}" for i in range(5)), "size.0", "size.1")


def test_a_vocabulary_grows_with_a_model_that_goes_on() -> None:
    spec = spec_of(
        model={"name": "lightgbm", "rounds": 3},
        standardize=False,
        use_previous_model=True,
        features=["city"],
        encode={"city": {"kind": "one_hot", "max_values": 6}},
    )
    first = trained(cities(names=("oslo", "rome")), spec, task=TASK)
    more = cities(names=("oslo", "rome", "lima"))
    second = trained(more, spec, task=TASK, previous=previous(first))
    assert first.state_dict["encode.0.values"].numpy().tobytes() == b"oslorome"
    assert second.state_dict["encode.0.values"].numpy().tobytes() == b"osloromelima"
    outputs = build_predictor(second.architecture, second.state_dict, threads=1, source="p")(more.samples)
    assert ((outputs.argmax(1) == more.labels) | (more.columns["size"] > 1)).all()


def test_embeddings_are_for_networks() -> None:
    with pytest.raises(ValueError, match="only mlp and logistic_regression make embeddings"):
        plain(FOREST, features=["city"], encode={"city": {"kind": "embedding"}})


def test_a_text_without_an_encoding_is_refused_by_name() -> None:
    spec: TrainingSpec = plain(FOREST, features=["city"])
    with pytest.raises(ConfigError, match=r"give it an encoding .*'city'"):
        trained(cities(), spec, task=TASK)
