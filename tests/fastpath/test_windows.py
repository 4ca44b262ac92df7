"""Search for marks of windows: the kernel finds what a plain comparison of all windows finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpath.arrays.windows import WIDTH, WindowSearch, window_marks
from tests.examples import examples

KEY = np.array([7, 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], dtype=np.uint64)


def all_marks(data: np.ndarray) -> np.ndarray:
    """Marks of the windows at every offset."""
    return window_marks(np.lib.stride_tricks.sliding_window_view(data, WIDTH), KEY)


def found(search: WindowSearch, data: np.ndarray) -> list[tuple[int, int]]:
    return [pair for positions, marks in search.find(data) for pair in zip(positions.tolist(), marks.tolist(), strict=True)]


@settings(max_examples=examples(100), deadline=None)
@given(data=st.binary(min_size=WIDTH, max_size=300), picks=st.lists(st.integers(0, 299), max_size=20), seed=st.integers(0, 9))
def test_the_windows_found_are_those_whose_mark_is_searched(data: bytes, picks: list[int], seed: int) -> None:
    content = np.frombuffer(data, np.uint8)
    every = all_marks(content)
    strangers = np.random.default_rng(seed).integers(0, 2**32, 50, dtype=np.uint32)
    searched = np.concatenate((every[[pick % len(every) for pick in picks]], strangers)).astype(np.uint32)
    expected = [(i, int(mark)) for i, mark in enumerate(every) if mark in searched]
    assert found(WindowSearch(searched, KEY), content) == expected


@pytest.mark.parametrize("n", [0, 1, WIDTH - 1])
def test_bytes_shorter_than_a_window_have_none(n: int) -> None:
    assert found(WindowSearch(np.array([0], np.uint32), KEY), np.zeros(n, np.uint8)) == []


def test_without_marks_nothing_is_found() -> None:
    assert found(WindowSearch(np.empty(0, np.uint32), KEY), np.zeros(1000, np.uint8)) == []


def test_more_windows_than_one_call_returns_are_all_found_in_order() -> None:
    content = np.zeros(200_000, np.uint8)
    [mark] = set(all_marks(content[:WIDTH]).tolist())
    places = [position for position, _ in found(WindowSearch(np.array([mark], np.uint32), KEY), content)]
    assert places == list(range(len(content) - WIDTH + 1))


def test_many_marks_leave_the_filter_exact() -> None:
    rng = np.random.default_rng(0)
    content = rng.integers(0, 256, 50_000, dtype=np.uint8)
    searched = np.concatenate((all_marks(content)[::100], rng.integers(0, 2**32, 100_000, dtype=np.uint32)))
    expected = np.flatnonzero(np.isin(all_marks(content), searched)).tolist()
    assert [position for position, _ in found(WindowSearch(searched, KEY), content)] == expected
