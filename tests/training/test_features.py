import json
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from modyn_dagster.errors import ConfigError, TrainingError, WrongShape
from modyn_dagster.training.columns.input import Input
from modyn_dagster.training.inputs.features import Features
from modyn_dagster.training.models.layout import Layout
from modyn_dagster.training.parsing.parser import Parsing
from tests.training.table import MakeTable, Table, spec_of


def features_of(table: Table, exclude: Collection[str] = (), **fields: object) -> Features:
    spec = spec_of(**fields)
    return Features.of(spec, table.samples, Parsing(spec.parser, "pipeline p"), exclude=exclude)


def array_of(features: Features, table: Table) -> npt.NDArray[Any]:
    """The only input."""
    arrays = features(table.samples)
    assert list(arrays) == ["features"]
    return arrays["features"]


@pytest.fixture
def mixed(table: MakeTable) -> Table:
    return table(
        {
            "count": np.array([1, 2, 3], dtype=np.int32),
            "name": np.array(["a", "b", "c"], dtype=object),
            "flag": np.array([True, False, True]),
            "share": np.array([0.5, np.nan, 2.0]),
            "label": np.array([0, 1, 0]),
            "grid": np.arange(12, dtype=np.float32).reshape(3, 2, 2),
        },
        labels=np.array([0, 1, 0]),
    )


def test_numeric_means_every_number_and_bool_in_column_order_but_what_is_excluded(mixed: Table) -> None:
    features = features_of(mixed, exclude={"label"})
    assert features.layout.inputs[0].columns == (("count", 1), ("flag", 1), ("share", 1), ("grid", 4))
    np.testing.assert_array_equal(
        array_of(features, mixed),
        np.array([[1, 1, 0.5, 0, 1, 2, 3], [2, 0, np.nan, 4, 5, 6, 7], [3, 1, 2, 8, 9, 10, 11]]),
    )


def test_a_list_names_columns_and_their_order(mixed: Table) -> None:
    features = features_of(mixed, features=["share", "count"])
    np.testing.assert_array_equal(array_of(features, mixed), np.array([[0.5, 1], [np.nan, 2], [2, 3]]))


def test_an_unknown_column_is_refused_with_the_known_ones(mixed: Table) -> None:
    with pytest.raises(ConfigError, match=r"pipeline p: training.features: is not a column; known: count, name.*'shares'"):
        features_of(mixed, features=["shares"])


def test_a_column_of_text_is_refused(mixed: Table) -> None:
    with pytest.raises(ConfigError, match=r"training.features: is text: give it an encoding .*'name'"):
        features_of(mixed, features=["name"])


def test_a_dataset_without_numbers_is_refused(table: MakeTable) -> None:
    text = table({"name": np.array(["a"], dtype=object)})
    with pytest.raises(ConfigError, match="no numeric column to learn from; columns: name"):
        features_of(text)


def test_a_parser_makes_columns_of_bytes(table: MakeTable, parsers: str) -> None:
    blobs = table({}, blobs=[b"1.5,2", b"3,4"])
    features = features_of(blobs, parser=f"{parsers}:two_numbers", features=["right", "left"])
    np.testing.assert_array_equal(array_of(features, blobs), np.array([[2, 1.5], [4, 3]]))


def test_an_array_of_a_parser_reaches_a_custom_model_in_its_shape_and_dtype(table: MakeTable, parsers: str) -> None:
    blobs = table({}, blobs=[b"abcd", b"efgh"])
    custom = {"factory": "training_user_code:linear"}
    features = features_of(blobs, parser=f"{parsers}:images", model=custom)
    assert features.layout == Layout((Input("features", (), (2, 2), tabular=False, dtype=None),))
    found = array_of(features, blobs)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, [[[97, 98], [99, 100]], [[101, 102], [103, 104]]])


def test_an_array_of_a_parser_is_flattened_for_a_built_in_model(table: MakeTable, parsers: str) -> None:
    blobs = table({}, blobs=[b"abcd", b"efgh"])
    features = features_of(blobs, parser=f"{parsers}:images")
    found = array_of(features, blobs)
    assert features.layout.n_features == 4
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, [[97, 98, 99, 100], [101, 102, 103, 104]])


def test_a_parser_that_loses_a_sample_is_named(table: MakeTable, parsers: str) -> None:
    blobs = table({}, blobs=[b"1", b"2"])
    with pytest.raises(WrongShape, match=r"one_too_few, array 'left', returned shape \(1,\), expected \(2, \.\.\.\)"):
        features_of(blobs, parser=f"{parsers}:one_too_few")


def test_a_parser_that_fails_is_named_with_its_pipeline(table: MakeTable, parsers: str) -> None:
    blobs = table({}, blobs=[b"1"])
    with pytest.raises(
        TrainingError,
        match=r"pipeline p: training.parser: .*:unparsable failed on the sample with key \d+: ValueError: bad magic",
    ):
        features_of(blobs, parser=f"{parsers}:unparsable")


def test_a_parser_must_return_a_dict(table: MakeTable, parsers: str) -> None:
    blobs = table({}, blobs=[b"1"])
    with pytest.raises(ConfigError, match="must return a dict of arrays, not list"):
        features_of(blobs, parser=f"{parsers}:a_list")


def test_a_parser_where_samples_come_as_columns_is_refused(mixed: Table, parsers: str) -> None:
    with pytest.raises(ConfigError, match=r"training.parser: these samples come as columns, not as bytes"):
        features_of(mixed, parser=f"{parsers}:two_numbers")


def test_a_layout_survives_json(mixed: Table) -> None:
    layout = features_of(mixed, exclude={"label"}).layout
    assert Layout.from_json(json.loads(json.dumps(layout.to_json()))) == layout


def test_a_recorded_layout_refuses_columns_of_another_width(mixed: Table, table: MakeTable) -> None:
    layout = features_of(mixed, features=["grid"]).layout
    narrow = table({"grid": np.zeros((3, 3))})
    with pytest.raises(WrongShape, match=r"column 'grid' returned shape \(3, 3\), expected \(n, 4\)"):
        Features(layout, Parsing(None, "pipeline p"))(narrow.samples)


def test_a_recorded_layout_refuses_an_array_of_another_shape(table: MakeTable, parsers: str) -> None:
    layout = Layout((Input("features", (), (3, 3), tabular=False, dtype=None),))
    blobs = table({}, blobs=[b"abcd"])
    with pytest.raises(WrongShape, match=r"images returned shape \(1, 2, 2\), expected \(n, 3, 3\)"):
        Features(layout, Parsing(f"{parsers}:images", "pipeline p"))(blobs.samples)


GROUPS = {
    "numeric": {"columns": ["share", "count"]},
    "categorical": {"columns": ["flag", "count"], "dtype": "int64"},
    "small": {"columns": ["count"], "dtype": "uint8"},
}
CUSTOM = {"factory": "training_user_code:recommender"}


def test_groups_are_inputs_by_name_each_in_its_dtype(mixed: Table, user_code: str) -> None:
    features = features_of(mixed, features=GROUPS, model=CUSTOM, standardize=False)
    assert features.layout.named
    assert features.layout.n_features == {"numeric": 2, "categorical": 2, "small": 1}
    found = features(mixed.samples)
    assert {name: array.dtype for name, array in found.items()} == {
        "numeric": "float32",
        "categorical": "int64",
        "small": "uint8",
    }
    np.testing.assert_array_equal(found["numeric"], np.array([[0.5, 1], [np.nan, 2], [2, 3]], dtype=np.float32))
    np.testing.assert_array_equal(found["categorical"], [[1, 1], [0, 2], [1, 3]])


def test_float_groups_that_are_standardised_keep_all_digits_until_then(mixed: Table, user_code: str) -> None:
    layout = features_of(mixed, features=GROUPS, model=CUSTOM).layout
    assert [(each.tabular, each.dtype) for each in layout.inputs] == [(True, "float64"), (False, "int64"), (False, "uint8")]


def test_a_float_column_in_a_group_of_integers_is_refused(mixed: Table, user_code: str) -> None:
    groups = {"categorical": {"columns": ["share"], "dtype": "int64"}}
    with pytest.raises(ConfigError, match=r"training.features.categorical: is float64, which int64 cannot hold"):
        features_of(mixed, features=groups, model=CUSTOM)


def test_groups_survive_json(mixed: Table, user_code: str) -> None:
    for standardize in (True, False):
        layout = features_of(mixed, features=GROUPS, model=CUSTOM, standardize=standardize).layout
        assert Layout.from_json(json.loads(json.dumps(layout.to_json()))) == layout
