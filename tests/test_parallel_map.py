import threading
import time

import pytest

from modyn_dagster.parallel_map import map_in_threads, n_workers


def test_results_come_in_the_order_of_the_items() -> None:
    def work(i: int) -> int:
        time.sleep(0.002 * (i % 3))
        return i * i

    assert list(map_in_threads(work, range(50))) == [i * i for i in range(50)]
    assert list(map_in_threads(work, [7])) == [49]
    assert list(map_in_threads(work, [])) == []


def test_the_first_error_in_order_is_raised_and_what_is_far_behind_never_runs() -> None:
    ran = []

    def work(i: int) -> int:
        ran.append(i)
        if i in (3, 4):
            raise ValueError(f"item {i}")
        return i

    done: list[int] = []
    with pytest.raises(ValueError, match="item 3"):
        done.extend(map_in_threads(work, range(1000)))
    assert max(ran) < 3 + 2 * n_workers() + n_workers()


def test_a_consumer_that_is_slow_holds_the_workers_back() -> None:
    started = 0
    lock = threading.Lock()

    def work(i: int) -> int:
        nonlocal started
        with lock:
            started += 1
        return i

    results = map_in_threads(work, range(1000))
    for taken in range(1, 20):
        next(results)
        time.sleep(0.001)
        assert started < taken + 2 * n_workers()
    results.close()  # type: ignore[attr-defined]  # it is a generator
    assert threading.active_count() < 50
