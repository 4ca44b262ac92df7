"""A slab is used again when nothing refers to it, and never before."""

import gc
import mmap
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastpath.array_types import ByteArray
from fastpath.threads.ring import Ring


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 100_000])
def test_a_slab_begins_at_a_multiple_of_64_and_is_long_enough(n):
    ring = Ring(3)
    slabs = [ring.take(n) for _ in range(5)]
    assert all(len(slab) >= n and address(slab) % 64 == 0 and slab.dtype == np.uint8 for slab in slabs)


def test_a_slab_that_nobody_has_is_used_again():
    ring = Ring(3)
    places = {address(ring.take(1_000)) for _ in range(50)}
    assert len(places) == 1


KEEPERS = {
    "the slab": lambda slab: slab,
    "a view": lambda slab: slab[64:128],
    "a view of a view": lambda slab: slab[64:192].view(np.float32)[3:].reshape(-1, 1),
    "a memoryview": lambda slab: memoryview(slab[10:20]),
    "a structured view": lambda slab: slab[:64].view([("a", "<i4"), ("b", "<i4")])["b"],
    "a tensor": lambda slab: torch.from_numpy(slab[64:128].view(np.int64)),
    "a view of a tensor": lambda slab: torch.from_numpy(slab[64:128])[3:5],
    "a shared buffer": lambda slab: np.frombuffer(memoryview(slab)[64:128], dtype=np.int16),
    "an object with one": lambda slab: {"columns": [slab[3:4]]},
}


def pinned(n: int) -> np.ndarray:
    return torch.empty(n, dtype=torch.uint8).numpy()


def part_of_more(n: int) -> np.ndarray:
    return np.zeros(n + 1_000, dtype=np.uint8)[777:]


def mapped(n: int) -> np.ndarray:
    return np.frombuffer(mmap.mmap(-1, n), dtype=np.uint8)


@pytest.mark.parametrize("allocate", [np.zeros, pinned, part_of_more, mapped], ids=lambda f: f.__name__)
@pytest.mark.parametrize("keep", KEEPERS.values(), ids=KEEPERS.keys())
def test_a_slab_of_which_anything_is_kept_is_left_alone(keep, allocate):
    def bytes_of(n: int) -> np.ndarray:
        memory: np.ndarray = allocate(n).view(np.uint8)[:n] if allocate is not np.zeros else np.zeros(n, np.uint8)
        return memory

    ring = Ring(2, bytes_of)
    slab = ring.take(256)
    place = address(slab)
    kept = keep(slab)
    del slab
    assert all(address(ring.take(256)) != place for _ in range(6))
    del kept
    gc.collect()
    held = ring.take(256)
    assert address(ring.take(256)) == place != address(held)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), max_size=60), st.integers(1, 4))
def test_what_is_kept_never_changes_and_the_rest_is_bounded(steps, slots):
    allocated = 0

    def counted(n: int) -> np.ndarray:
        nonlocal allocated
        allocated += 1
        return np.empty(n, dtype=np.uint8)

    ring, kept = Ring(slots, counted), []
    most_kept = 0
    for number, (keep, let_go) in enumerate(steps):
        slab = ring.take(64)
        slab[:] = number % 251
        if keep:
            kept.append((number % 251, slab[8:16]))
        del slab
        if kept and let_go == 0:
            kept.pop(0)
        most_kept = max(most_kept, len(kept))
        assert all((view == value).all() for value, view in kept)
    if not any(keep for keep, _ in steps):
        assert allocated <= 1
    assert len(ring) <= slots


def test_memory_is_the_ring_and_what_is_kept():
    allocated: list[int] = []

    def counted(n: int) -> np.ndarray:
        allocated.append(n)
        return np.empty(n, dtype=np.uint8)

    ring = Ring(3, counted)
    kept = [ring.take(1_000) for _ in range(20)]
    assert len(allocated) == 20
    del kept
    for _ in range(100):
        ring.take(1_000)
    assert len(allocated) == 20


def test_slabs_grow_to_the_largest_that_was_asked_for():
    ring = Ring(2)
    small = ring.take(100)
    assert len(ring.take(5_000)) >= 5_000
    del small
    # The small one is not given out any more, not even for less.
    assert all(len(ring.take(10)) >= 5_000 for _ in range(3))


def test_threads_never_get_the_same_slab():
    ring, wrong = Ring(3), []

    def use(value: int) -> None:
        for _ in range(400):
            slab = ring.take(2_048)
            slab[:] = value
            if (slab != value).any():
                wrong.append(value)
            del slab

    threads = [threading.Thread(target=use, args=(value,)) for value in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_allocates_may_keep_what_it_gave():
    given_out: list[np.ndarray] = []

    def allocate(n: int) -> np.ndarray:
        given_out.append(np.empty(n, dtype=np.uint8))
        return given_out[-1]

    ring = Ring(2, allocate)
    for _ in range(10):
        ring.take(100)
    assert len(given_out) == 1


def test_an_allocator_that_keeps_its_last_buffer_for_a_while_shares_no_slab():
    kept: list[ByteArray] = []

    def allocate(n):
        kept[:] = [np.empty(n, dtype=np.uint8)]
        return kept[0]

    ring = Ring(3, allocate)
    slabs = [ring.take(100)[:50] for _ in range(4)]
    assert len({address(slab) for slab in slabs}) == 4
    del slabs
    places = {address(ring.take(100)) for _ in range(9)}
    assert len(places) == 1
