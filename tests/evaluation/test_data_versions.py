"""Versions of data: equal exactly where the same samples with the same truth are judged."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.evaluation import Interval, Predictions
from modyn_dagster.evaluation.cells import cell_address, data_versions
from modyn_dagster.keys import keys_of
from tests.examples import examples

SECOND = 1_000_000


def moment(second: int) -> np.datetime64:
    return np.datetime64(second * SECOND, "us")


def interval(start: int, end: int) -> Interval:
    return Interval(moment(start), moment(end), moment(start))


def a_stream(samples: list[tuple[int, int, int, int]]) -> Predictions:
    """Samples as (batch, position, second, label)."""
    ordinals, positions, seconds, labels = (np.array(column, np.int64) for column in zip(*samples, strict=True))
    keys = np.concatenate([keys_of(int(ordinal), np.array([position])) for ordinal, position in zip(ordinals, positions)])
    times = (seconds * SECOND).astype("datetime64[us]")
    outputs = np.zeros((len(keys), 2), np.float32)
    return Predictions("class", keys, times, labels, outputs, np.zeros(len(keys), np.float32))


samples = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 9), st.integers(-1, 1)),
    min_size=1,
    max_size=12,
    unique_by=lambda sample: sample[:2],
)


@pytest.mark.long
@settings(max_examples=examples(300), deadline=None)
@given(one=samples, other=samples, start=st.integers(0, 9), length=st.integers(0, 9))
def test_versions_are_equal_exactly_where_the_judged_samples_are(one, other, start, length):
    inside = [{sample for sample in stream if start <= sample[2] < start + length} for stream in (one, other)]
    [first], [second] = (data_versions(a_stream(each), [interval(start, start + length)], "d", {}) for each in (one, other))
    assert (first == second) == (inside[0] == inside[1])


@settings(max_examples=examples(50), deadline=None)
@given(stream=samples, seed=st.integers(0, 99))
def test_neither_order_nor_outputs_nor_other_intervals_count(stream, seed):
    predictions = a_stream(stream)
    shuffled = predictions.take(np.random.default_rng(seed).permutation(len(stream)))
    louder = replace(shuffled, outputs=shuffled.outputs + 1)
    alone = data_versions(predictions, [interval(2, 7)], "d", {})
    assert data_versions(louder, [interval(0, 5), interval(2, 7)], "d", {})[1:] == alone


def test_datasets_and_contents_of_batches_tell_versions_apart():
    stream, whole = a_stream([(0, 0, 1, 0), (1, 0, 2, 1)]), [interval(0, 9), interval(0, 2)]
    one = data_versions(stream, whole, "d", {0: "a", 1: "b"})
    assert data_versions(stream, whole, "e", {0: "a", 1: "b"})[0] != one[0]
    other = data_versions(stream, whole, "d", {0: "a", 1: "c"})
    assert (other[0] == one[0], other[1] == one[1]) == (False, True)


@pytest.mark.parametrize("place", range(5))
def test_everything_that_an_address_is_made_of_counts(place):
    parts: list[Any] = ["model", interval(0, 5), "accuracy", "data", [1]]
    others: list[Any] = ["model2", interval(0, 6), "brier", "data2", [2]]
    assert cell_address(*parts) == cell_address(*parts)
    assert cell_address(*(others[i] if i == place else part for i, part in enumerate(parts))) != cell_address(*parts)
