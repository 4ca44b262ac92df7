"""Models of columns that are encoded, imputed, and chosen by dtype and pattern."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpath import TrainingSet
from modyn_dagster.errors import BadSample, ConfigError
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import PreviousModel, Task, TrainedModel, TrainingData, build_predictor
from modyn_dagster.training.data import COLUMNS
from modyn_dagster.training.inputs.dataset_statistics import measure_dataset
from modyn_dagster.training.models.layout import Layout
from modyn_dagster.training.parsing.parser import Parsing
from tests.examples import examples
from tests.training.table import FASTEST, Table, spec_of
from tests.training.trained import assert_same_bits, trained
from tests.variants import represented

N = 120
ENCODINGS: dict[str, dict[str, Any]] = {
    "one_hot": {"kind": "one_hot"},
    "hash": {"kind": "hash", "buckets": 16},
    "embedding": {"kind": "embedding", "dimension": 3, "max_values": 9},
    "hashed embedding": {"kind": "embedding", "dimension": 3, "buckets": 32},
}
FEW = Task("class", exclude=frozenset({"label"}))


def cities(n: int = N, names: tuple[str, ...] = ("rome", "oslo", "köln", "")) -> Table:
    """The class is a city's, or that of a large number, which is missing now and then."""
    rng = np.random.default_rng(n)
    city = np.array(names, dtype=object)[rng.integers(0, len(names), n)]
    size = np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n))
    label = ((city == "oslo") | (np.nan_to_num(size) > 1)).astype(np.int64)
    columns = {"size": size, "city": city, "floor": rng.integers(-1, 3, n), "label": label}
    return Table(columns, labels=label)


def learning(**fields: Any) -> TrainingSpec:
    model = {"model": {"name": "mlp", "hidden": [8]}, "optimizer": {"name": "adam", "lr": 0.02}}
    return spec_of(**{**model, "epochs": 15, "batch_size": 30} | fields)


def predictor(found: TrainedModel) -> Any:
    return build_predictor(found.architecture, found.state_dict, threads=1, source="p")


def layout_of(found: TrainedModel) -> Layout:
    return Layout.from_json(found.architecture["features"])


@pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=list(ENCODINGS))
def test_a_column_of_text_is_learnt_from(encoding: dict[str, Any]) -> None:
    table = cities()
    found = trained(table, learning(encode={"city": encoding}, impute={"size": {"indicator": True}}))
    assert (predictor(found)(table.samples).argmax(1) == table.labels).mean() > 0.95


@pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=list(ENCODINGS))
def test_values_that_no_training_saw_predict_something_finite_and_alike(encoding: dict[str, Any]) -> None:
    found = trained(cities(), learning(encode={"city": encoding}, epochs=1))
    new = cities(8)
    new.columns["size"][:] = 0.5
    new.columns["floor"][:] = 1
    new.columns["city"][:] = ["lima", "quito"] * 4 if "buckets" not in encoding else "lima"
    outputs = predictor(found)(new.samples)
    assert np.isfinite(outputs).all()
    np.testing.assert_allclose(outputs, np.broadcast_to(outputs[0], outputs.shape), rtol=1e-5)


def test_an_unknown_value_that_training_never_saw_adds_nothing() -> None:
    spec = learning(encode={"city": {"kind": "one_hot"}}, features=["city"], model={"name": "logistic_regression"}, epochs=1)
    found = trained(cities(), spec)
    new = cities(1)
    new.columns["city"][:] = "lima"
    np.testing.assert_array_equal(predictor(found)(new.samples)[0], found.state_dict["body.bias"].numpy())


def test_rare_values_are_one_class_with_unknown_ones() -> None:
    table = cities()
    table.columns["city"][:3] = ["x", "y", "z"]
    found = trained(table, learning(encode={"city": {"kind": "one_hot", "min_count": 2}}))
    assert layout_of(found).encodings[0].n_values == 4
    new = cities(2)
    new.columns["city"][:], new.columns["size"][:], new.columns["floor"][:] = ["x", "lima"], 0, 0
    outputs = predictor(found)(new.samples)
    assert (outputs[0] == outputs[1]).all()


def test_truth_values_and_numbers_are_not_standardised() -> None:
    table = cities()
    spec = learning(
        encode={"city": {"kind": "one_hot"}, "floor": {"kind": "hash", "buckets": 2}}, impute={"*": {"indicator": True}}
    )
    found = trained(table, spec)
    inputs = predictor(found).tapped(table.samples, [COLUMNS])[COLUMNS]
    assert set(np.unique(inputs[:, 1:])) == {0, 1}
    assert inputs[:, 0].std() == pytest.approx(1, abs=1e-6)
    assert (inputs[:, 1] == np.isnan(table.columns["size"])).all()


def fitted_state(spec: TrainingSpec, table: Table, chosen: Any) -> dict[str, bytes]:
    keys = table.keys[np.asarray(chosen)]
    data = TrainingData(TrainingSet.of(keys, np.ones(len(keys), np.float32)), table, FASTEST)
    encoders = measure_dataset(spec, data, FEW, Parsing(None, "p")).reading.features.encoders
    return {name: array.tobytes() for name, array in encoders.state().items()}


@settings(max_examples=examples(20))
@given(st.sets(st.integers(0, N - 1), min_size=1), st.randoms(use_true_random=False))
def test_what_is_fitted_depends_on_the_training_set_alone_and_not_on_its_order(chosen: set[int], random: Any) -> None:
    spec = learning(
        encode={"city": {"kind": "one_hot", "max_values": 2, "beyond": "unknown"}, "floor": {"kind": "number"}},
        impute={"size": {"by": "mean"}},
    )
    table, other, order = cities(), cities(), sorted(chosen)
    outside = np.setdiff1d(np.arange(N), order)
    other.columns["city"][outside], other.columns["size"][outside], other.columns["floor"][outside] = "elsewhere", 1e9, 77
    shuffled = list(order)
    random.shuffle(shuffled)
    expected = fitted_state(spec, table, order)
    assert fitted_state(spec, other, order) == expected
    assert fitted_state(spec, table, shuffled) == expected


def test_weights_of_samples_are_no_part_of_what_is_fitted() -> None:
    spec = learning(encode={"city": {"kind": "one_hot"}}, impute={"size": {}}, epochs=1)
    one, other = trained(cities(), spec), trained(cities(), spec, weights=np.linspace(1, 9, N))
    names = [name for name in one.state_dict if name.startswith(("encode.", "standardize."))]
    assert_same_bits(*({name: found.state_dict[name] for name in names} for found in (one, other)))


@pytest.mark.parametrize("kind", ["one_hot", "embedding"])
def test_a_vocabulary_grows_from_model_to_model(kind: str) -> None:
    encoding = {"kind": kind, "max_values": 6} | ({"dimension": 2} if kind == "embedding" else {})
    spec = learning(encode={"city": encoding}, use_previous_model=True, epochs=2)
    first = trained(cities(), spec)
    previous = PreviousModel(first.state_dict, first.architecture)
    second = trained(cities(80, ("rome", "aden", "lima")), spec, previous=previous)
    number = len(layout_of(second).encodings) - 1
    text, offsets = (second.state_dict[f"encode.{number}.{name}"].numpy() for name in ("values", "offsets"))
    values = [text[start:stop].tobytes().decode() for start, stop in pairwise(offsets.tolist())]
    assert values == ["", "köln", "oslo", "rome", "aden", "lima"]
    assert layout_of(first).n_features == layout_of(second).n_features
    # No sample of the second set is from Oslo, so what the first model learnt of it stays.
    shapes = {name: tensor.shape for name, tensor in first.state_dict.items() if name.startswith("body.")}
    assert shapes == {name: tensor.shape for name, tensor in second.state_dict.items() if name.startswith("body.")}
    if kind == "embedding":
        row = "body.0.tables.0.weight"
        assert torch.equal(first.state_dict[row][3], second.state_dict[row][3])
    third = spec.model_copy(update={"encode": learning(encode={"city": encoding | {"beyond": "refuse"}}).encode})
    with pytest.raises(
        ConfigError, match=r"encode.city.max_values: column 'city' has, with those of the previous model, 7 values"
    ):
        trained(cities(80, ("bern", "aden", "lima")), third, previous=PreviousModel(second.state_dict, second.architecture))


def test_another_encoding_than_that_of_the_previous_model_is_refused() -> None:
    first = trained(cities(), learning(encode={"city": {"kind": "one_hot", "max_values": 6}}, use_previous_model=True, epochs=1))
    spec = learning(encode={"city": {"kind": "hash", "buckets": 7}}, use_previous_model=True)
    with pytest.raises(ConfigError, match="the previous model saw other features"):
        trained(cities(), spec, previous=PreviousModel(first.state_dict, first.architecture))


def test_groups_of_integers_get_numbers_of_values(user_code: str) -> None:
    groups = {
        "numeric": {"columns": ["size"]},
        "categorical": {"columns": ["city", "floor"], "dtype": "int64"},
    }
    encode = {"city": {"kind": "number", "max_values": 50}, "floor": {"kind": "number", "buckets": 9}}
    spec = learning(
        features=groups, encode=encode, impute={"size": {"by": "constant", "value": -1}}, model={"name": "dlrm", "rows": 60}
    )
    table = cities()
    found = trained(table, spec)
    assert layout_of(found).n_features == {"numeric": 1, "categorical": 2}
    assert (predictor(found)(table.samples).argmax(1) == table.labels).mean() > 0.9


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ([{"dtype": "numeric"}], ["size", "floor"]),
        ([{"dtype": "string"}, {"dtype": "float64"}], ["city", "size"]),
        (["floor", {"pattern": "*i*"}], ["floor", "size", "city"]),
        ([{"pattern": "*i*"}, "city"], ["size", "city"]),
        ([{"pattern": "*", "without": ["s?ze", "floor"]}], ["city"]),
        ([{"dtype": "int64", "pattern": "f*"}], ["floor"]),
        ("numeric", ["size", "city", "floor"]),
    ],
)
def test_features_are_chosen_by_name_dtype_and_pattern(features: Any, expected: list[str]) -> None:
    columns = cities().columns
    encode = {"c*": {"kind": "hash", "buckets": 3}} if "city" in expected else {}
    spec = spec_of(features=features, encode=encode)
    layout = Layout.of(spec, columns, exclude={"label"}, source="p")
    assert [name for name, _ in layout.inputs[0].columns] == expected


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "text without an encoding": ({"features": ["city"]}, "features: is text: give it an encoding .*'city'"),
    "text by a selector": ({"features": [{"dtype": "string"}]}, "features: is text: give it an encoding"),
    "selector of nothing": ({"features": [{"pattern": "x*"}]}, r"features.0: selects no column; known: size \(float64\), city"),
    "no such column": ({"encode": {"town": {"kind": "one_hot"}}}, "encode: is not a column; features: .*'town'"),
    "pattern of nothing": ({"encode": {"t*": {"kind": "one_hot"}}}, "encode: matches no feature that it could be for"),
    "no feature": ({"features": ["size"], "encode": {"city": {"kind": "one_hot"}}}, "encode: is no feature: add it"),
    "the label": ({"encode": {"label": {"kind": "one_hot"}}}, "encode: is time, id, label or an attribute"),
    "fractions": ({"encode": {"size": {"kind": "one_hot"}}}, "encode: is float64: text, integers and truth values"),
    "text without numbers": ({"features": ["city"], "impute": {"city": {}}}, "impute: is string: a missing text is a value"),
    "integers": ({"impute": {"floor": {}}}, "impute: is int64: only floats can be missing"),
    "too many values": (
        {"encode": {"city": {"kind": "one_hot", "max_values": 3}}},
        "'city' has 4 values in this training set: raise",
    ),
    "numbers that do not fit": (
        {
            "features": {"a": {"columns": ["city"], "dtype": "uint8"}},
            "encode": {"city": {"kind": "number", "max_values": 256}},
            "model": {"factory": "training_user_code:by_keywords"},
        },
        "features.a: has numbers up to 256, which uint8 cannot hold",
    ),
    "fractions in integers": (
        {
            "features": {"a": {"columns": ["size"], "dtype": "int32"}},
            "impute": {"size": {}},
            "model": {"factory": "training_user_code:by_keywords"},
        },
        "features.a: is float64, which int32 cannot hold",
    ),
}


@pytest.mark.parametrize(("fields", "message"), REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_is_refused_by_column(fields: dict[str, Any], message: str, user_code: str) -> None:
    with pytest.raises(ConfigError, match=message):
        trained(cities(), spec_of(**fields))


def test_an_object_that_is_no_text_is_named_by_column_and_key() -> None:
    table = cities()
    table.columns["city"][7] = 3
    with pytest.raises(
        BadSample, match=r"training.encode: column 'city' failed on the sample with key \d+: 3 is no text"
    ) as caught:
        trained(table, learning(encode={"city": {"kind": "one_hot"}}))
    assert caught.value.key == int(table.keys[7])
    found = trained(cities(), learning(encode={"city": {"kind": "one_hot"}}, epochs=1))
    with pytest.raises(BadSample, match="column 'city' failed"):
        predictor(found)(table.samples)


def test_a_damaged_vocabulary_is_refused() -> None:
    found = trained(cities(), learning(encode={"city": {"kind": "one_hot"}}, epochs=1))
    found.state_dict["encode.0.offsets"][1] = 1_000
    with pytest.raises(ConfigError, match="the stored vocabulary is damaged"):
        predictor(found)


@represented("policy", ["rho", "craig", "dlis"], "laws-training", "rho")
def test_downsampling_chooses_among_encoded_samples(policy: str) -> None:
    table = cities()
    chosen = {"policy": policy, "ratio": 0.5}
    spec = learning(encode={"city": {"kind": "embedding", "dimension": 3}}, downsampling=chosen, epochs=12)
    one, other = trained(table, spec), trained(table, spec)
    assert_same_bits(one.state_dict, other.state_dict)
    assert (predictor(one)(table.samples).argmax(1) == table.labels).mean() > 0.7
