"""Streams in other processes: pickled, forked, and killed."""

import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Iterator

import numpy as np
import pytest
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from fastpath import BatchStream, SampleStore, TrainingSet, TrainingSetWriter
from tests.fastpath.children import keys_of, send_keys, send_until_killed
from tests.fastpath.stored import row_store


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SampleStore, np.ndarray]]:
    store, keys = row_store(tmp_path_factory.mktemp("rows"))
    with store:
        yield store, keys


@pytest.fixture(scope="module")
def stream(rows, tmp_path_factory) -> BatchStream:
    store, keys = rows
    path = tmp_path_factory.mktemp("sets") / "set.arrow"
    with path.open("wb") as out, TrainingSetWriter(out) as writer:
        for start in range(0, len(keys), 300):
            writer.write(keys[start : start + 300], np.ones(len(keys[start : start + 300]), np.float32))
    return BatchStream(store, TrainingSet.open(path, writer.checksum), 50, seed=3, threads=2)


def test_a_pickled_stream_goes_on_where_it_stood(rows):
    store, keys = rows
    stream = BatchStream(store, keys, 50, seed=3, threads=2)
    whole = keys_of(stream)
    iterator = iter(stream)
    for _ in range(4):
        next(iterator)
    again = pickle.loads(pickle.dumps(stream))  # noqa: S301 - of our own
    assert again.state_dict() == stream.state_dict()
    assert keys_of(again) == whole[4:]
    # The one that was pickled has its threads still.
    assert next(iterator).number == 4


@pytest.mark.process
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_stream_in_a_child_gives_the_same_batches(stream, method):
    whole = keys_of(stream)
    iterator = iter(stream)
    next(iterator)
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=send_keys, args=(stream, theirs))
    child.start()
    theirs.close()
    assert ours.poll(60)
    assert ours.recv() == whole[1:]
    child.join(10)
    assert child.exitcode == 0
    stream.set_epoch(1)
    stream.set_epoch(0)


@pytest.mark.process
def test_an_iteration_of_the_parent_says_so_in_a_forked_child(stream):
    iterator = iter(stream)
    next(iterator)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            next(iterator)
        except RuntimeError as error:
            os.write(writing, str(error).encode())
        # Letting go of it must not wait for locks that the parent's threads held.
        del iterator
        stream.close()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        assert b"another process" in answer.read()
    assert os.waitpid(child, 0)[1] == 0
    assert next(iterator).number == 1
    stream.set_epoch(1)
    stream.set_epoch(0)


@pytest.mark.process
def test_forks_at_any_moment_of_an_iteration_do_not_hang(rows):
    store, keys = rows
    stream = BatchStream(store, keys, 5, seed=1, threads=3, prefetch=3)
    expected = keys_of(stream)[:3]
    for number, _ in enumerate(stream):
        if number % 20:
            continue
        child = os.fork()
        if child == 0:
            again = BatchStream(store, keys, 5, seed=1, threads=2)
            found = [batch.keys.tobytes() for _, batch in zip(range(3), again)]
            os._exit(0 if found == expected else 1)
        deadline = time.monotonic() + 20
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.002)
        assert ended[1] == 0


@pytest.mark.process
def test_a_child_that_is_killed_in_the_middle_does_not_hang_the_parent(stream):
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=send_until_killed, args=(stream, theirs), daemon=True)
    child.start()
    theirs.close()
    whole = keys_of(stream)
    assert ours.poll(60)
    assert ours.recv() == whole
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join(5)
    assert child.exitcode == -signal.SIGKILL
    began = time.monotonic()
    with pytest.raises((EOFError, OSError)):
        while True:
            ours.recv()
    assert time.monotonic() - began < 1
    assert keys_of(stream) == whole


class Dealt(IterableDataset):
    """A stream as a dataset: each worker is one consumer of it."""

    def __init__(self, stream: BatchStream) -> None:
        self.stream = stream

    def __iter__(self):
        worker = get_worker_info()
        assert worker is not None
        return iter(self.stream.for_shard(worker.id, worker.num_workers))


def number_and_keys(batch) -> tuple[int, bytes]:
    return batch.number, batch.keys.tobytes()


@pytest.mark.process
def test_workers_of_a_data_loader_share_an_epoch(rows):
    store, keys = rows
    stream = BatchStream(store, keys, 50, seed=3, threads=2, transform=number_and_keys)
    found = list(DataLoader(Dealt(stream), batch_size=None, num_workers=2, multiprocessing_context="fork"))
    assert sorted(map(tuple, found)) == list(stream)
