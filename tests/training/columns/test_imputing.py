"""Values for missing numbers: scikit-learn and exact fractions as oracles."""

import math
import statistics
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer

from modyn_dagster.training.columns.encoders import Encoder
from modyn_dagster.training.columns.encoding import Encoding
from modyn_dagster.training.columns.imputing import ExactMean, Median
from tests.examples import examples

FLOATS = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, -0.0, 5e-324, 1.7e308, -1.7e308, 1e16, 1.0])


def of_chunks(statistic: ExactMean | Median, values: list[float], chunk: int) -> float:
    for start in range(0, len(values), chunk):
        statistic.update(np.array(values[start : start + chunk]))
    return statistic.value()


@settings(max_examples=examples(60))
@given(st.lists(FLOATS, max_size=30), st.integers(1, 7))
def test_a_mean_is_the_exact_one_rounded_once(values: list[float], chunk: int) -> None:
    finite = [Fraction(value) for value in values if math.isfinite(value)]
    expected = float(sum(finite) / len(finite)) if finite else 0.0
    assert of_chunks(ExactMean(), values, chunk) == expected


@settings(max_examples=examples(60))
@given(st.lists(FLOATS, max_size=30), st.integers(1, 7))
def test_a_median_is_that_of_the_standard_library(values: list[float], chunk: int) -> None:
    finite = [Fraction(value) for value in values if math.isfinite(value)]
    expected = float(statistics.median(finite)) if finite else 0.0
    assert of_chunks(Median(), values, chunk) == expected


@pytest.mark.parametrize("by", ["mean", "median"])
def test_missing_numbers_are_filled_as_scikit_learn_does(by: str) -> None:
    rng = np.random.default_rng(1)
    train, new = rng.normal(3, 2, 501), rng.normal(size=50)
    train[::5], new[::3] = np.nan, np.nan
    statistic = ExactMean() if by == "mean" else Median()
    statistic.update(train)
    encoder = Encoder.of(Encoding("x", "impute", indicator=True), fill=statistic.value())
    found = np.zeros((50, 2))
    encoder.into(new, found)
    oracle = SimpleImputer(strategy=by, add_indicator=True).fit(train[:, None])
    np.testing.assert_allclose(found, oracle.transform(new[:, None]), rtol=1e-15)


def test_a_column_of_float32_is_filled_with_all_digits() -> None:
    found = np.zeros((2, 1))
    Encoder.of(Encoding("x", "impute"), fill=0.1).into(np.array([np.nan, 0.5], dtype=np.float32), found)
    assert found.tolist() == [[0.1], [0.5]]
