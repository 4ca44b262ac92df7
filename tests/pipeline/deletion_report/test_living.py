"""Bytes that belong to a sample which stays, also where samples lie in each other."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.pipeline.operate.deletion.report.living import Spans

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30)), max_size=8)


@given(ranges=spans, start=st.integers(0, 60), length=st.integers(1, 20))
def test_bytes_are_held_if_one_range_holds_all_of_them(ranges: list[tuple[int, int]], start: int, length: int) -> None:
    offsets, lengths = np.array(ranges, np.int64).reshape(-1, 2).T
    expected = any(offset <= start and start + length <= offset + size for offset, size in ranges)
    assert Spans(offsets, lengths).hold(start, length) is expected


def test_a_range_around_another_one_is_not_forgotten() -> None:
    assert Spans(np.array([0, 10]), np.array([100, 5])).hold(50, 16)
