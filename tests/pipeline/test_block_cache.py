"""Blocks in memory."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.pipeline.measure.feature_extractor import BlockCache, BlockKey, BlockValues


def block(*taps: str, width: int = 8) -> BlockValues:
    return BlockValues(np.arange(4), np.zeros(4), {tap: np.zeros((4, width), np.float32) for tap in taps})


def key(number: int, model: str = "m", deleted: int = 0) -> BlockKey:
    return BlockKey(model, 0, number, deleted, 0)


def test_a_block_is_found_when_it_shows_what_is_asked_for():
    cache = BlockCache()
    cache.keep(key(0), block("a", "b"))
    assert cache.find(key(0), frozenset({"a"})) is not None
    assert cache.find(key(0), frozenset({"a", "c"})) is None
    assert cache.find(key(0, deleted=1), frozenset({"a"})) is None
    assert cache.find(key(1), frozenset()) is None


def test_another_model_s_blocks_take_the_place_of_the_old_ones():
    cache = BlockCache()
    cache.keep(key(0), block("a"))
    cache.keep(key(1, "new"), block("a"))
    assert cache.find(key(0), frozenset()) is None
    assert cache.find(key(1, "new"), frozenset()) is not None


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60), st.integers(1, 6))
def test_the_blocks_asked_for_last_stay_within_bounds(steps, room):
    cache = BlockCache(most_bytes=room * block("a").n_bytes)
    kept: list[int] = []
    for asks, number in steps:
        if asks:
            assert (cache.find(key(number), frozenset({"a"})) is not None) is (number in kept)
            kept = [*(n for n in kept if n != number), number] if number in kept else kept
        else:
            cache.keep(key(number), block("a"))
            kept = [*(n for n in kept if n != number), number][-room:]


def test_a_block_larger_than_all_room_is_kept_alone():
    cache = BlockCache(most_bytes=1)
    cache.keep(key(0), block("a"))
    cache.keep(key(1), block("a"))
    assert cache.find(key(0), frozenset()) is None
    assert cache.find(key(1), frozenset()) is not None
