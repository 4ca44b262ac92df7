"""Ends of an iteration: in every case its threads end within a second, and no thread waits for ever."""

import gc
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from fastpath import Batch, BatchStream, CorruptFile, SampleStore, UnknownKey
from tests.fastpath.stored import row_store

Stored = tuple[SampleStore, np.ndarray]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return row_store(tmp_path_factory.mktemp("rows"))


def running() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("prefetch-")}


def wait_until_gone(threads: set[threading.Thread]) -> None:
    deadline = time.monotonic() + 1
    while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
        time.sleep(0.002)
    assert not any(thread.is_alive() for thread in threads)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = running()
    yield
    gc.collect()
    wait_until_gone(running() - before)


def test_a_consumer_that_takes_all_leaves_no_thread(rows):
    store, keys = rows
    stream = BatchStream(store, keys, 10, threads=3)
    iterator = iter(stream)
    next(iterator)
    threads = running()
    assert len(threads) == 3
    assert len(list(iterator)) == 99
    wait_until_gone(threads)


def test_a_consumer_that_never_starts_has_no_thread(rows):
    store, keys = rows
    stream = BatchStream(store, keys, 10, threads=3)
    iterator = iter(stream)
    assert running() == set()
    del iterator, stream


def test_a_consumer_that_stops_early_leaves_no_thread(rows):
    store, keys = rows
    stream = BatchStream(store, keys, 10, threads=3)
    threads = set()
    for _ in stream:
        threads |= running()
        break
    assert threads
    wait_until_gone(threads)


def test_a_consumer_that_fails_leaves_no_thread_once_it_is_forgotten(rows):
    store, keys = rows
    threads = set()

    def consume() -> None:
        for _ in BatchStream(store, keys, 10, threads=2):
            threads.update(running())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        consume()
    gc.collect()
    wait_until_gone(threads)


@pytest.mark.parametrize("how", ["close", "with", "garbage", "cycle"])
def test_a_stream_that_is_closed_or_forgotten_leaves_no_thread(rows, how):
    store, keys = rows
    stream = BatchStream(store, keys, 10, threads=2)
    iterator = iter(stream)
    next(iterator)
    threads = running()
    assert threads
    if how == "close":
        stream.close()
        stream.close()
        assert not any(thread.is_alive() for thread in threads)
        with pytest.raises(RuntimeError, match="the stream was closed"):
            next(iterator)
        assert [batch.number for batch in stream] == list(range(1, 100))
        return
    if how == "with":
        with stream:
            pass
        assert not any(thread.is_alive() for thread in threads)
        return
    if how == "cycle":
        stream.itself, stream.iterator = stream, iterator  # type: ignore[attr-defined]  # makes the cycle
    del stream, iterator
    gc.collect()
    wait_until_gone(threads)


def test_a_consumer_that_waits_is_told_when_another_thread_closes_the_stream(rows):
    store, keys = rows
    blocked, told = threading.Event(), []
    stream = BatchStream(store, keys, 10, transform=lambda batch: blocked.wait(10))

    def consume() -> None:
        try:
            list(stream)
        except RuntimeError as error:
            told.append(str(error))

    consumer = threading.Thread(target=consume)
    consumer.start()
    while not running():
        time.sleep(0.001)
    closing = threading.Thread(target=stream.close)
    closing.start()
    consumer.join(0.9)
    assert not consumer.is_alive()
    assert "closed" in told[0]
    blocked.set()
    closing.join(2)


@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("threads", [1, 3])
def test_an_exception_of_a_transform_is_raised_at_its_batch(rows, prefetch, threads):
    store, keys = rows

    def fail_at_7(batch: Batch) -> int:
        if batch.number == 7:
            raise KeyError("no such thing")
        return batch.number

    stream = BatchStream(store, keys, 10, prefetch=prefetch, threads=threads, transform=fail_at_7)
    iterator = iter(stream)
    assert [next(iterator) for _ in range(7)] == list(range(7))
    began = time.monotonic()
    with pytest.raises(KeyError, match="no such thing"):
        next(iterator)
    assert time.monotonic() - began < 1
    wait_until_gone(running())
    with pytest.raises(RuntimeError, match="closed"):
        next(iterator)
    assert stream.state_dict()["position"] == 7


def test_an_exception_does_not_wait_for_those_who_are_slow(rows):
    store, keys = rows
    release = threading.Event()

    def slow_but_for_the_first(batch: Batch) -> None:
        if batch.number == 0:
            raise KeyError("at once")
        release.wait(0.3)

    began = time.monotonic()
    with pytest.raises(KeyError):
        next(iter(BatchStream(store, keys, 10, threads=4, transform=slow_but_for_the_first)))
    assert time.monotonic() - began < 1
    release.set()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError("no room")], ids=repr)
def test_whatever_a_transform_raises_arrives(rows, error):
    store, keys = rows

    def fail(batch: Batch) -> None:
        raise error

    with pytest.raises(type(error)):
        next(iter(BatchStream(store, keys, 10, transform=fail)))


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_stop_iteration_of_a_transform_is_not_the_end_of_the_epoch(rows, prefetch):
    store, keys = rows
    with pytest.raises(RuntimeError, match="the transform raised StopIteration"):
        list(BatchStream(store, keys, 10, prefetch=prefetch, transform=lambda batch: next(iter(()))))


def test_an_unknown_key_is_raised_at_its_batch(rows):
    store, keys = rows
    wrong = keys.copy()
    wrong[555] = 77 << 32
    iterator = iter(BatchStream(store, wrong, 100, shuffle=False, threads=3))
    assert [next(iterator).number for _ in range(5)] == list(range(5))
    with pytest.raises(UnknownKey, match=str(77 << 32)):
        next(iterator)


def test_a_file_that_is_gone_is_raised_at_its_batch(tmp_path):
    store, keys = row_store(tmp_path)
    (tmp_path / "shards" / "rows" / "1.bin").write_bytes(b"short")
    iterator = iter(BatchStream(store, keys, 100, shuffle=False, threads=2))
    assert [next(iterator).number for _ in range(7)] == list(range(7))
    with pytest.raises(CorruptFile, match=r"1\.bin"):
        next(iterator)


def test_many_streams_begun_and_left_do_not_pile_up(rows):
    store, keys = rows
    for _ in range(100):
        next(iter(BatchStream(store, keys, 10, threads=2)))
    gc.collect()
    wait_until_gone(running())


@pytest.mark.process
@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("raise KeyError", 1),
        *(
            pytest.param(*each, marks=pytest.mark.soak("laws-fastpath"))
            for each in (("", 0), ("sys.exit(3)", 3), ("import _thread; _thread.interrupt_main(); next(i)", -signal.SIGINT))
        ),
    ],
)
def test_an_interpreter_exits_at_once_with_an_iteration_under_way(tmp_path, ending, code):
    row_store(tmp_path)
    # Shells start background jobs, and with them whatever they run, with SIGINT ignored.
    program = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import numpy as np
from fastpath import BatchStream, SampleStore
store = SampleStore.open(sorted(__import__('pathlib').Path(sys.argv[1]).glob('batches/rows/*.arrow')))
keys = np.tile(np.arange(700, dtype=np.uint64), 50_000)
i = iter(BatchStream(store, keys, 65_536, threads=3, prefetch=3))
next(i)
print("began", flush=True)
{ending}
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        began = time.monotonic()
        _, errors = process.communicate(timeout=30)
    assert process.returncode == code, errors
    # Python's own way out takes its time on a busy machine.
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("how", ["taken", "failed", "never started"])
def test_what_an_iteration_held_is_free_before_garbage_is_collected(rows, how):
    store, keys = rows
    chosen = np.append(keys, np.uint64(9 << 32)) if how == "failed" else keys
    gc.collect()
    gc.disable()
    try:
        held: list[weakref.ref[Any]] = []

        def allocate(n_bytes: int) -> np.ndarray:
            memory = np.empty(n_bytes, np.uint8)
            held.append(weakref.ref(memory))
            return memory

        stream = BatchStream(store, chosen, 100, threads=2, allocate=allocate)
        iterator = iter(stream)
        held.append(weakref.ref(stream))
        threads: set[threading.Thread] = set()
        if how != "never started":
            with nullcontext() if how == "taken" else pytest.raises(UnknownKey):
                for batch in iterator:
                    threads |= running()
                    del batch
        wait_until_gone(threads)
        del stream, iterator
        threads.clear()
        assert [each for each in held if each() is not None] == []
        assert (len(held) == 1) == (how == "never started")
    finally:
        gc.enable()


def test_no_batch_is_kept_alive_by_the_threads(rows):
    store, keys = rows
    stream = BatchStream(store, keys, 10, threads=3)
    seen = [weakref.ref(batch.keys) for batch in stream]
    assert len(seen) == 100
    assert [found for found in seen if found() is not None] == []


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_in_the_last_batch_is_not_the_end_of_the_epoch(rows, prefetch):
    store, keys = rows

    def fail_at_last(batch: Batch) -> Batch:
        if batch.number == 1:
            raise KeyError("last")
        return batch

    iterator = iter(BatchStream(store, keys[:20], 10, prefetch=prefetch, transform=fail_at_last))
    next(iterator)
    with pytest.raises(KeyError, match="last"):
        next(iterator)
    with pytest.raises(RuntimeError, match="closed"):
        next(iterator)


def test_a_thread_that_cannot_start_is_an_error_and_nobody_waits(rows, monkeypatch):
    store, keys = rows
    iterator = iter(BatchStream(store, keys[:20], 10, threads=2))
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "prefetch-1":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start"):
        next(iterator)
    with pytest.raises(RuntimeError, match="closed"):
        next(iterator)


def test_closing_waits_for_all_threads_together(rows):
    store, keys = rows
    release, entered = threading.Event(), threading.Semaphore(0)

    def wait(batch: Batch) -> Batch:
        entered.release()
        release.wait()
        return batch

    stream = BatchStream(store, keys[:100], 10, threads=6, prefetch=6, transform=wait)
    iterator = iter(stream)

    def take() -> None:
        with pytest.raises(RuntimeError):
            next(iterator)

    taker = threading.Thread(target=take)
    taker.start()
    for _ in range(6):
        entered.acquire()
    began = time.monotonic()
    stream.close()
    took = time.monotonic() - began
    release.set()
    taker.join()
    assert took < 3
