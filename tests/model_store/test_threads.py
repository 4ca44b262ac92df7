"""Object pools and executors: no object has two borrowers, and work keeps its order."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.model_store.format.threads import InlineExecutor, ObjectPool, batches, buffers, executor_for

ENOUGH = 1 << 20


@given(st.lists(st.integers(0, 2 * ENOUGH) | st.integers(0, 9)))
def test_batches_are_all_items_in_order_and_each_but_the_last_is_just_enough(sizes):
    found = list(batches(sizes, lambda size: size))
    assert [size for batch in found for size in batch] == sizes
    assert all(found)
    for batch in found[:-1]:
        assert sum(batch[:-1]) < ENOUGH <= sum(batch)
    assert not found or sum(found[-1][:-1]) < ENOUGH


def test_a_thing_is_with_one_borrower_at_a_time_and_comes_back_whatever_happens():
    things = buffers(8)

    def borrow(n: int) -> bool:
        with things.borrow() as thing, things.borrow() as other:
            thing[:] = other[:] = bytes([n] * 8)
            time.sleep(0.001)
            return thing.tobytes() == other.tobytes() == bytes([n] * 8)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(borrow, range(100)))


def test_what_was_lent_is_lent_again_and_only_a_few_are_kept():
    made = iter(range(1000))
    things = ObjectPool(lambda: next(made))
    try:
        with things.borrow():
            raise ValueError
    except ValueError:
        pass
    with things.borrow() as again:
        assert again == 0

    def nested(depth: int) -> None:
        if depth:
            with things.borrow():
                nested(depth - 1)

    nested(100)
    assert next(made) == 100
    nested(100)
    assert next(made) == 100 + 1 + 100 - 16


def test_little_work_is_done_by_whoever_submits_it_and_much_by_threads():
    with ThreadPoolExecutor(1) as pool:
        assert executor_for(pool, 1 << 30) is pool
        few = executor_for(pool, 1000)
    assert isinstance(few, InlineExecutor)
    own = threading.get_ident()
    assert few.submit(threading.get_ident).result() == own
    assert list(few.map(lambda n: (n, threading.get_ident()), range(3))) == [(n, own) for n in range(3)]
    failed = few.submit(int, "text")
    with pytest.raises(ValueError, match="text"):
        failed.result()
