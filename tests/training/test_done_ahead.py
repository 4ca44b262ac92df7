"""Work done ahead keeps its order, stays within its bounds, and raises where its result would be."""

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modyn_dagster.parallel_map import map_ahead
from tests.examples import examples


@settings(max_examples=examples(25))
@given(n=st.integers(0, 12), threads=st.integers(1, 3), prefetch=st.integers(0, 4))
def test_results_come_in_order_and_items_are_taken_no_further_than_allowed(n: int, threads: int, prefetch: int) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for i in range(n):
            taken.append(i)
            yield i

    for number, result in enumerate(map_ahead(lambda i: i * i, items(), threads=threads, prefetch=prefetch)):
        assert result == number**2
        assert len(taken) <= number + 1 + prefetch
    assert taken == list(range(n))


@pytest.mark.parametrize("prefetch", [0, 3])
def test_what_is_raised_comes_in_its_place_and_ends_the_threads(prefetch: int) -> None:
    before = set(threading.enumerate())
    found = map_ahead(lambda i: 6 // (3 - i), range(9), threads=2, prefetch=prefetch)
    assert [next(found) for _ in range(3)] == [2, 3, 6]
    with pytest.raises(ZeroDivisionError):
        next(found)
    assert set(threading.enumerate()) == before


def test_whoever_stops_early_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    found = map_ahead(str, range(100), threads=2, prefetch=2)
    assert next(found) == "0"
    del found
    assert set(threading.enumerate()) == before
