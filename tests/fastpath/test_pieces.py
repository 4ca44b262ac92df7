"""Requests in pieces: after the end of a request, however it ends, none of its threads writes any more."""

import gc
import signal
import threading
import time
import weakref

import numpy as np
import pytest

from fastpath import SampleStore
from fastpath.threads.workers import Users, Workers
from tests.fastpath.stored import row_store

N = 40_000


@pytest.fixture
def interruptible():
    # Shells start background jobs, and with them whatever they run, with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_request_ends_when_its_pieces_have():
    running, ended = threading.Semaphore(0), []

    def work(start: int, stop: int) -> None:
        running.release()
        time.sleep(0.2)
        ended.append(start)

    def interrupt() -> None:
        running.acquire()
        running.acquire()
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=interrupt).start()
    workers = Workers()
    with pytest.raises(KeyboardInterrupt):
        workers.run(N, N // 4, 2, work)
    # The piece of this thread was cut off, that of the other one was waited for.
    n_ended = len(ended)
    assert n_ended >= 1
    time.sleep(0.3)
    assert len(ended) == n_ended
    workers.close()


def test_a_submit_that_fails_half_way_waits_for_the_pieces_before(monkeypatch):
    workers, ended = Workers(), []
    workers.run(N, N // 3, 3, lambda *_: None)
    start = threading.Thread.start

    def work(first: int, _: int) -> None:
        time.sleep(0.1)
        ended.append(first)

    def refuse(thread: threading.Thread) -> None:
        if thread.name.endswith("_1"):
            raise RuntimeError("can't start new thread")
        start(thread)

    workers.close()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start"):
        workers.run(N, N // 4, 3, work)
    n_ended = len(ended)
    assert n_ended >= 1
    time.sleep(0.2)
    assert len(ended) == n_ended


def test_the_first_error_is_raised_when_all_pieces_have_ended():
    ended = []

    def work(start: int, stop: int) -> None:
        time.sleep(0.05 if start else 0)
        ended.append(start)
        raise ValueError(start)

    with pytest.raises(ValueError, match=r"^0$"):
        Workers().run(N, N // 4, 4, work)
    assert len(ended) == 4


@pytest.mark.long
def test_requests_go_on_while_others_close_the_store(tmp_path):
    before = set(threading.enumerate())
    store, keys = row_store(tmp_path)
    many = np.tile(keys, -(-N // len(keys)))
    expected = store.read_blobs(many).buffer
    stop, errors = threading.Event(), []

    def read(store: SampleStore) -> None:
        while not stop.is_set():
            try:
                np.testing.assert_array_equal(store.read_blobs(many, threads=2).buffer, expected)
            except BaseException as error:  # noqa: BLE001  any is one too many
                errors.append(error)

    readers = [threading.Thread(target=read, args=(store,)) for _ in range(2)]
    for reader in readers:
        reader.start()
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        store.close()
    stop.set()
    for reader in readers:
        reader.join()
    store.close()
    assert not errors
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fastpath") and thread not in before]


def test_who_asks_does_pieces_too():
    seen = set()

    def work(*_: int) -> None:
        seen.add(threading.current_thread())
        time.sleep(0.01)

    Workers().run(N, N // 4, 2, work)
    assert threading.current_thread() in seen
    assert len(seen) == 2


def test_a_request_does_not_wait_for_another_ones_pieces():
    workers, going = Workers(), threading.Event()
    began = threading.Semaphore(0)

    def slow(*_: int) -> None:
        began.release()
        going.wait(10)

    other = threading.Thread(target=workers.run, args=(N, N // 2, 2, slow))
    other.start()
    began.acquire()
    began.acquire()
    ended = []
    workers.run(N, N // 2, 2, lambda start, _: ended.append(start))
    assert sorted(ended) == [0, N // 2]
    assert not going.is_set() and other.is_alive()
    going.set()
    other.join()
    workers.close()


def test_a_failed_request_keeps_nothing_alive():
    class Result:
        pass

    def failing() -> weakref.ref[Result]:
        result = Result()

        def work(*_: int) -> None:
            raise ValueError(result)

        with pytest.raises(ValueError, match="Result"):
            workers.run(N, N // 2, 2, work)
        return weakref.ref(result)

    workers = Workers()
    gc.disable()
    try:
        assert failing()() is None
    finally:
        gc.enable()
    workers.close()


def test_a_lost_mark_keeps_nobody_waiting():
    users = Users()
    kept, lost = users.enter(), users.enter()
    del lost
    assert len(users) == 1
    users.leave(kept)
    users.wait()
