"""``StreamLoader`` and ``StreamDataset`` over a store on disk: every batch once, in order, resumable, and nothing left behind."""

import gc
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import pytest
import torch
from torch.utils.data import DataLoader

from fastpath import BatchStream, Columns, FixedRows, SampleStore, TrainingSet, UnknownKey
from modyn_dagster.keys import KeyArray
from modyn_dagster.training import StreamDataset, StreamLoader
from tests.training.rows_on_disk import ROW, RowsOnDisk
from tests.variants import represented

N = 1000
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
GROUPS = {"numeric": (["a", "b"], "float32"), "categorical": (["kind"], "int64")}


@pytest.fixture
def rows(tmp_path: Path) -> RowsOnDisk:
    return RowsOnDisk.make(tmp_path, [600, 500])


@pytest.fixture
def chosen(rows: RowsOnDisk) -> TrainingSet:
    keys = np.random.default_rng(0).permutation(rows.keys)[:N]
    return TrainingSet.of(keys, np.linspace(1, 2, N, dtype=np.float32))


def alive() -> set[object]:
    """Threads and child processes, but for the one that Python itself keeps for what is spawned."""
    children = [child for child in psutil.Process().children() if "resource_tracker" not in " ".join(child.cmdline())]
    return {*threading.enumerate(), *children}


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = alive()
    yield
    gc.collect()
    deadline = time.monotonic() + 1
    while left := alive() - before:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


@pytest.fixture
def make(rows: RowsOnDisk, chosen: TrainingSet) -> Callable[..., BatchStream]:
    """Makes streams over the rows, with other options if any are given."""

    def stream(allocate: Any = None, **options: Any) -> BatchStream:
        fixed: dict[str, Any] = {"shuffle": True, "seed": 3, "columns": Columns(ROW, GROUPS), "labels": True}
        given = fixed | options
        return BatchStream(rows.store, given.pop("chosen", chosen), 64, allocate=allocate, **given)

    return stream


Make = Callable[..., BatchStream]


def keys_of(batches: Iterable[Any]) -> list[list[int]]:
    return [batch["keys"].tolist() for batch in batches]


def expected_keys(make: Make, **options: Any) -> list[list[int]]:
    return [batch.keys.tolist() for batch in make(**options)]


def test_a_batch_is_tensors_of_what_the_stream_gathers(make: Make, rows: RowsOnDisk, chosen: TrainingSet) -> None:
    loader = StreamLoader(make())
    assert len(loader) == 16
    weight_of = dict(zip(chosen.keys().tolist(), chosen.weights().tolist(), strict=True))
    for number, batch in enumerate(loader):
        assert set(batch) == {"number", "keys", "weights", "labels", "numeric", "categorical"}
        assert batch["number"] == number
        records = rows.records_of(batch["keys"].numpy().view(np.uint64))
        assert batch["weights"].tolist() == [weight_of[key] for key in batch["keys"].tolist()]
        assert batch["labels"].tolist() == records["kind"].tolist()
        assert batch["numeric"].dtype == torch.float32
        np.testing.assert_array_equal(batch["numeric"], np.stack([records["a"], records["b"]], 1).astype(np.float32))
        np.testing.assert_array_equal(batch["categorical"], records["kind"][:, None])


def test_on_a_cpu_tensors_are_the_streams_own_memory(make: Make) -> None:
    seen: list[int] = []

    def watched(batch: Any) -> Any:
        seen.append(batch.columns["numeric"].ctypes.data)
        return batch

    loader = StreamLoader(make(transform=lambda batch: {"numeric": watched(batch).columns["numeric"]}))
    for number, batch in enumerate(loader):
        assert batch["numeric"].data_ptr() == seen[number]


def test_rows_blobs_and_times_are_tensors_too(make: Make, rows: RowsOnDisk) -> None:
    batch = next(iter(StreamLoader(make(columns=None, labels=False, timestamps=True))))
    assert set(batch) == {"number", "keys", "weights", "rows", "timestamps"}
    keys = batch["keys"].numpy().view(np.uint64)
    np.testing.assert_array_equal(batch["rows"].numpy().view(ROW)[:, 0], rows.records_of(keys))
    assert batch["timestamps"].tolist() == (keys & np.uint64(0xFFFFFFFF)).tolist()


def test_what_a_transform_returns_keeps_its_form(make: Make) -> None:
    def transform(batch: Any) -> tuple[Any, ...]:
        return batch.number, [batch.weights, {"x": batch.columns["numeric"]}], "text"

    number, (weights, inputs), text = next(iter(StreamLoader(make(transform=transform))))
    assert (number, text) == (0, "text")
    assert isinstance(weights, torch.Tensor)
    assert isinstance(inputs["x"], torch.Tensor)


def test_a_column_may_not_have_a_name_of_the_batchs_own(make: Make) -> None:
    loader = StreamLoader(make(columns=Columns(ROW, {"keys": "a"})))
    with pytest.raises(ValueError, match="columns must not be named keys"):
        next(iter(loader))


@pytest.mark.parametrize("taken", [0, 1, 7, 15, 16])
def test_a_loader_goes_on_where_another_one_was(make: Make, taken: int) -> None:
    expected = expected_keys(make)
    first = StreamLoader(make())
    batches = iter(first)
    assert keys_of([next(batches) for _ in range(taken)]) == expected[:taken]
    state = first.state_dict()
    first.close()
    second = StreamLoader(make())
    second.load_state_dict(state)
    assert second.state_dict() == state
    if taken < len(expected):
        assert keys_of(second) == expected[taken:]
        assert keys_of(second) == expected, "after its end an epoch begins again"


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("device", DEVICES)
def test_an_epoch_that_was_taken_to_its_last_batch_is_followed_by_a_whole_one(make: Make, device: str, stop: bool) -> None:
    expected = expected_keys(make)
    loader = StreamLoader(make, device=device)
    for _ in range(2):
        batches = iter(loader)
        assert keys_of([next(batches) for _ in range(len(loader))]) == expected
        if stop:
            loader.close()
    assert keys_of(loader) == expected


@pytest.mark.parametrize("device", DEVICES)
def test_an_epoch_that_was_given_up_goes_on(make: Make, device: str) -> None:
    expected = expected_keys(make)
    loader = StreamLoader(make, device=device)
    for first in (0, 5, 10):
        assert keys_of(batch for _, batch in zip(range(5), loader, strict=False)) == expected[first : first + 5]


def test_epochs_have_orders_of_their_own_and_states_know_theirs(make: Make) -> None:
    loader = StreamLoader(make())
    zero = keys_of(loader)
    loader.set_epoch(1)
    batches = iter(loader)
    one = [next(batches)["keys"].tolist()]
    other = StreamLoader(make())
    other.load_state_dict(loader.state_dict())
    one += keys_of(other)
    assert one != zero
    assert sorted(chain.from_iterable(one)) == sorted(chain.from_iterable(zero))


def test_a_state_of_another_training_set_is_refused(make: Make) -> None:
    state = StreamLoader(make()).state_dict()
    with pytest.raises(ValueError, match="seed"):
        StreamLoader(make(seed=4)).load_state_dict(state)


def test_an_error_while_reading_reaches_the_consumer(make: Make, chosen: TrainingSet) -> None:
    keys = chosen.keys()
    keys[500] = 9 << 32
    loader = StreamLoader(make(chosen=TrainingSet.of(keys), shuffle=False))
    got: list[int] = []
    with pytest.raises(UnknownKey, match=str(9 << 32)):
        got.extend(batch["number"] for batch in loader)
    assert got == list(range(7))


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 2])
def test_every_batch_reaches_one_rank_in_the_global_order(make: Make, ranks: int, workers: int) -> None:
    expected = expected_keys(make)
    for rank in range(ranks):
        dataset = StreamDataset(make(), shard=(rank, ranks))
        loader = DataLoader(dataset, batch_size=None, num_workers=workers)
        assert keys_of(iter(loader)) == expected[rank::ranks]
        assert len(dataset) == len(expected[rank::ranks])


@pytest.mark.soak("laws-training")
@pytest.mark.long
def test_workers_that_are_not_forked_get_the_same(make: Make) -> None:
    loader = DataLoader(StreamDataset(make()), batch_size=None, num_workers=1, multiprocessing_context="spawn")
    assert keys_of(iter(loader)) == expected_keys(make)


@pytest.mark.process
def test_a_dataset_that_a_rank_sends_to_workers_outside_its_process_group_keeps_the_ranks_share(
    make: Make, tmp_path: Path
) -> None:
    fork = multiprocessing.get_context("fork")
    sent: Any = fork.SimpleQueue()
    ranks = [fork.Process(target=_send_from_rank, args=(make(), rank, tmp_path / "meeting", sent)) for rank in range(2)]
    for process in ranks:
        process.start()
    found = dict(sent.get() for _ in ranks)
    for process in ranks:
        process.join()
    for rank in range(2):
        dataset = pickle.loads(found[rank])  # noqa: S301  of our own
        assert len(dataset) == len(expected_keys(make)[rank::2])
        assert keys_of(iter(dataset)) == expected_keys(make)[rank::2]


def _send_from_rank(stream: BatchStream, rank: int, meeting: Path, sent: Any) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    sent.put((rank, pickle.dumps(StreamDataset(stream))))
    torch.distributed.barrier()


@pytest.mark.process
@pytest.mark.parametrize(("before", "after"), [((1, 0), (1, 2)), ((2, 1), (1, 0)), ((1, 2), (2, 1))])
def test_a_dataset_goes_on_with_another_number_of_ranks_and_workers(
    make: Make, before: tuple[int, int], after: tuple[int, int]
) -> None:
    """``before`` and ``after``: ranks, workers of each."""
    taken = 3
    expected = expected_keys(make)
    states = []
    for rank in range(before[0]):
        dataset = StreamDataset(make(), shard=(rank, before[0]))
        batches = iter(DataLoader(dataset, batch_size=None, num_workers=before[1]))
        assert keys_of([next(batches) for _ in range(taken)]) == expected[rank :: before[0]][:taken]
        states.append(dataset.state_after(taken))
        del batches
    assert all(state == states[0] for state in states)
    rest = expected[taken * before[0] :]
    for rank in range(after[0]):
        dataset = StreamDataset(make(), shard=(rank, after[0]))
        dataset.load_state_dict(states[0])
        assert keys_of(iter(DataLoader(dataset, batch_size=None, num_workers=after[1]))) == rest[rank :: after[0]]


def test_a_dataset_without_workers_knows_where_it_is(make: Make) -> None:
    dataset = StreamDataset(make())
    batches = iter(dataset)
    for taken in range(1, 5):
        next(batches)
        assert dataset.state_dict() == dataset.state_after(taken)


@pytest.mark.process
def test_epochs_of_a_dataset_are_set_before_workers_start(make: Make) -> None:
    dataset = StreamDataset(make())
    dataset.set_epoch(2)
    assert keys_of(iter(DataLoader(dataset, batch_size=None, num_workers=1))) == expected_keys(make, epoch=2)


LOADERS: list[dict[str, Any]] = [{}, {"num_workers": 1}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}]


@pytest.mark.process
@represented("options", {str(options): options for options in LOADERS}, "laws-training", "{}", "{'num_workers': 2}")
def test_a_loaded_position_is_for_one_iteration(make: Make, options: dict[str, Any]) -> None:
    expected = expected_keys(make)
    dataset = StreamDataset(make())
    loader = DataLoader(dataset, batch_size=None, **options)
    for _ in range(2):
        dataset.load_state_dict(make().state_dict() | {"position": 13})
        assert keys_of(loader) == expected[13:]
        assert keys_of(loader) == expected
        assert keys_of(loader) == expected
        assert dataset.state_after(3)["position"] == 3


@pytest.mark.process
@represented("options", {str(options): options for options in LOADERS}, "laws-training", "{}", "{'num_workers': 2}")
def test_every_epoch_reaches_every_worker(make: Make, options: dict[str, Any]) -> None:
    dataset = StreamDataset(make())
    loader = DataLoader(dataset, batch_size=None, **options)
    for epoch in (0, 3, 1):
        dataset.set_epoch(epoch)
        assert keys_of(loader) == expected_keys(make, epoch=epoch)
    dataset.load_state_dict(make(epoch=2).state_dict() | {"position": 13})
    dataset.set_epoch(2)
    assert keys_of(loader) == expected_keys(make, epoch=2)[13:]


@pytest.mark.parametrize("stop", [lambda loader, batches: batches.close(), lambda loader, batches: loader.close()])
def test_a_consumer_that_stops_early_leaves_nothing(make: Make, stop: Callable[[StreamLoader, Any], None]) -> None:
    loader = StreamLoader(make(prefetch=4, threads=2))
    batches = iter(loader)
    next(batches)
    begin = time.monotonic()
    stop(loader, batches)
    assert time.monotonic() - begin < 1


@pytest.mark.process
def test_a_killed_worker_is_an_error_soon(make: Make) -> None:
    loader = DataLoader(StreamDataset(make(transform=slow)), batch_size=None, num_workers=1)
    batches = iter(loader)
    next(batches)
    worker = multiprocessing.active_children()[0]
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match=r"exited unexpectedly|killed by signal"):
        list(batches)
    assert time.monotonic() - begin < 6, "torch looks after its workers every five seconds"


def slow(batch: Any) -> npt.NDArray[np.float32]:
    time.sleep(0.3)
    weights: npt.NDArray[np.float32] = batch.weights
    return weights


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_gets_what_a_cpu_gets_from_a_stream_that_is_there(make: Make, device: str) -> None:
    on_cpu, on_device = StreamLoader(make()), StreamLoader(make, device=device)
    for one, other in zip(on_cpu, on_device, strict=True):
        for name, tensor in one.items():
            if name != "number":
                assert other[name].device.type == device
                assert torch.equal(tensor, other[name].cpu())
        assert on_cpu.state_dict() == on_device.state_dict()


def test_the_store_may_be_used_by_itself(rows: RowsOnDisk) -> None:
    with SampleStore.open(rows.indexes, dtype=ROW) as store:
        keys: KeyArray = rows.keys[::-7].copy()
        found = store.read(keys)
        assert isinstance(found, FixedRows)
        np.testing.assert_array_equal(found.view(ROW), rows.records_of(keys))


def test_an_abandoned_iteration_ends_no_later_one(tmp_path: Path) -> None:
    rows = RowsOnDisk.make(tmp_path, [400])
    loader = StreamLoader(BatchStream(rows.store, rows.keys, 50))
    abandoned = iter(loader)
    next(abandoned)
    later = iter(loader)
    first = next(later)
    del abandoned
    gc.collect()
    assert first is not None
    assert sum(1 for _ in later) == 6
    loader.close()
