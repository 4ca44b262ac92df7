import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.formats.labels import class_labels, class_texts, target_labels, target_texts
from modyn_dagster.spec.sources import LabelSpec


def spec(**fields: Any) -> LabelSpec:
    return LabelSpec.model_validate({"from": {"source": "column"}} | fields)


def classes(values: list[Any], type: pa.DataType | None = None, **fields: Any) -> list[Any]:
    return list(class_labels(pa.array(values, type), spec(**fields), "f", "label").tolist())


def test_integers_and_truth_values_are_classes_as_they_are() -> None:
    assert classes([3, 0, 3]) == [3, 0, 3]
    assert classes([True, False]) == [1, 0]


def test_texts_stay_names_until_the_batch_is_committed() -> None:
    assert classes(["dog", "cat"]) == ["dog", "cat"]
    assert classes(["dog", "cat"], classes=["cat", "dog"]) == ["dog", "cat"]


@pytest.mark.parametrize(
    ("values", "fields", "row", "message"),
    [
        (["a", ""], {}, 2, "the label is missing"),
        ([0.0, math.nan], {}, 2, "the label is missing"),
        ([0, -1], {}, 2, "the class -1 is negative"),
        ([0, 2], {"n_classes": 2}, 2, r"the class 2 is not in 0 .. 1"),
        (["a", "c"], {"classes": ["a", "b"]}, 2, "unknown class 'c'; the dataset's classes are 'a', 'b'"),
        ([0.5, 1.0], {}, None, "class labels are integers or text"),
    ],
    ids=str,
)
def test_a_class_that_cannot_be_is_named_with_its_row(values: list[Any], fields: Any, row: int | None, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        classes(values, **fields)
    assert (caught.value.row, caught.value.column) == (row, "label")


def test_targets_are_floats() -> None:
    np.testing.assert_array_equal(target_labels(pa.array([1, -2]), "f", "y"), [1.0, -2.0])
    np.testing.assert_array_equal(target_labels(pa.array([0.5, 2]), "f", "y"), [0.5, 2.0])


@pytest.mark.parametrize(
    ("values", "row", "message"),
    [
        ([1.0, math.nan], 2, "the target is missing"),
        ([1.0, math.inf], 2, "the target is inf"),
        (["1"], None, "a regression target is a number"),
    ],
    ids=str,
)
def test_a_target_that_is_no_finite_number_is_refused(values: list[Any], row: int | None, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        target_labels(pa.array(values), "f", "y")
    assert caught.value.row == row


def texts(values: list[str], as_integers: bool | None = None, **fields: Any) -> list[Any]:
    paths = [f"{i}.png" for i in range(len(values))]
    return list(class_texts(values, paths, spec(**fields), as_integers=as_integers).tolist())


def test_labels_of_files_are_integers_if_all_of_the_first_batch_are() -> None:
    assert texts(["1", "02"]) == [1, 2]
    assert texts(["1", "x"]) == ["1", "x"]
    assert texts(["1", "2"], as_integers=False) == ["1", "2"]
    assert texts(["1", "2"], classes=["1", "2"]) == ["1", "2"]
    assert texts(["1", "2"], n_classes=3) == [1, 2]


@pytest.mark.parametrize(
    ("values", "fields", "message"),
    [
        (["1", ""], {}, "1.png: the label is missing"),
        (["1", "x"], {"as_integers": True}, "1.png: the label 'x' is not an integer"),
        (["1", "7"], {"n_classes": 3}, "1.png: the class 7 is not in 0 .. 2"),
        (["1", "-1"], {"as_integers": True}, "1.png: the class -1 is negative"),
        (["a", "b"], {"classes": ["a"]}, "1.png: unknown class 'b'"),
    ],
    ids=str,
)
def test_a_bad_label_of_a_file_names_the_file(values: list[str], fields: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        texts(values, **fields)


def test_targets_of_files_are_floats() -> None:
    np.testing.assert_array_equal(target_texts(["1", "-2.5e3"], ["a", "b"]), [1.0, -2500.0])
    for text, message in (("", "missing"), ("x", "not a number"), ("nan", "not a finite number")):
        with pytest.raises(DataError, match=f"b: .*{message}"):
            target_texts(["1", text], ["a", "b"])
