"""Ordered pairs of many slices of one ranking: brute force as the oracle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpath.arrays.ordered_pairs import ordered_pairs
from tests.examples import examples


def ranked(scores: list[int]) -> tuple[np.ndarray, np.ndarray]:
    values = np.array(scores, np.int64)
    return np.argsort(values, kind="stable").astype(np.int32), np.unique(values, return_inverse=True)[1].astype(np.int32)


@pytest.mark.long
@settings(max_examples=examples(300), deadline=None)
@given(rows=st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=25), data=st.data())
def test_every_slice_counts_its_own_pairs(rows, data):
    n = len(rows)
    edges = st.lists(st.integers(0, n), min_size=4, max_size=4).map(sorted)
    starts = np.array(data.draw(edges), np.int64)
    stops = np.maximum(np.array(data.draw(edges), np.int64), starts)
    scores, positive = [score for score, _ in rows], np.array([flag for _, flag in rows], dtype=bool)
    found = ordered_pairs(positive, *ranked(scores), starts, stops)
    for i, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
        ups = [scores[row] for row in range(start, stop) if positive[row]]
        downs = [scores[row] for row in range(start, stop) if not positive[row]]
        doubled = sum(2 * (up > down) + (up == down) for up in ups for down in downs)
        assert (found.doubled[i], found.positives[i], found.negatives[i]) == (doubled, len(ups), len(downs))


@pytest.mark.parametrize(("starts", "stops"), [([1, 0], [2, 2]), ([0, 0], [2, 1]), ([0], [4]), ([-1], [2]), ([2], [1])], ids=str)
def test_slices_that_do_not_follow_each_other_or_leave_the_rows_are_refused(starts, stops):
    with pytest.raises(ValueError, match="slices must be ascending"):
        ordered_pairs(np.zeros(3, bool), *ranked([1, 2, 3]), np.array(starts), np.array(stops))


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 3], [-1, 0, 1]])
def test_an_order_of_other_rows_is_refused(order):
    with pytest.raises(ValueError, match=r"one length|order must hold rows"):
        ordered_pairs(np.zeros(3, bool), np.array(order, np.int32), np.zeros(3, np.int32), np.array([0]), np.array([3]))


def test_no_slices_and_no_rows_are_no_pairs():
    nothing = np.empty(0, np.int64)
    assert len(ordered_pairs(np.ones(3, bool), *ranked([1, 2, 3]), nothing, nothing).doubled) == 0
    assert ordered_pairs(np.ones(0, bool), *ranked([]), np.array([0]), np.array([0])).doubled.tolist() == [0]
