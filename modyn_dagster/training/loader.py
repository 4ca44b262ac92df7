"""A batch stream in torch: tensors on a device, resumable, alone or under a ``DataLoader``."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import IterableDataset, get_worker_info

from fastpath import Batch, BatchStream
from modyn_dagster.training.device_copy import DeviceCopy, as_tensor, mapped, tensor_of
from modyn_dagster.training.shared_begin import SharedBegin

State = dict[str, Any]


#: Makes a stream whose buffers come from what it is given (None: ordinary memory).
MakeStream = Callable[[Callable[[int], npt.NDArray[np.uint8]] | None], BatchStream]


class StreamLoader:
    """Batches of a stream as tensors on a device.

    A batch without a ``transform`` of the stream becomes a dict: ``number`` (int), ``keys`` (int64), ``weights`` (float32),
    and whichever the stream gathers of ``rows`` (uint8 ``[b, width]``), ``buffer`` and ``offsets``, ``labels``,
    ``timestamps`` (int64, microseconds) and the columns by name. What a transform returns keeps its form: arrays become
    tensors inside dicts, tuples, lists and dataclasses.

    On a CPU tensors share the stream's buffers, which are reused once nothing refers to them. On CUDA buffers are
    page-locked and the next batch is copied beside the computation.

    Args:
        stream: a stream, or what makes one: ``lambda allocate: BatchStream(store, chosen, 256, allocate=allocate)``. A made
            one gathers straight into page-locked memory; batches of the other are copied there.
        device: of the tensors.
        pin: page-lock buffers; None: for CUDA.
    """

    def __init__(self, stream: BatchStream | MakeStream, *, device: torch.device | str = "cpu", pin: bool | None = None) -> None:
        self.device = torch.device(device)
        pinned = self.device.type == "cuda" if pin is None else pin
        self.stream = stream if isinstance(stream, BatchStream) else stream(allocate_pinned if pinned else None)
        self._copy = DeviceCopy(self.device, pin=pinned)
        # Of the consumer, while copies run ahead of it.
        self._state: State | None = None

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.stream)

    def __iter__(self) -> Iterator[Any]:
        """The batches from where it stands; after the epoch's end, the epoch from its beginning."""
        return self._on_cpu() if self.device.type == "cpu" else self._on_device()

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of another epoch; its own changes nothing, so a resumed one goes on."""
        if epoch != self.stream.epoch:
            self.stream.set_epoch(epoch)
            self._state = None

    def state_dict(self) -> State:
        """Where the consumer is: the next batch of another loader with this state is the next one of this."""
        return dict(self._state if self._state is not None else self.stream.state_dict())

    def load_state_dict(self, state: State) -> None:
        """Go on where a loader was, of whatever device or number of consumers. ``ValueError`` for another training set."""
        self.stream.load_state_dict(state)
        self._state = None

    def close(self) -> None:
        """End the stream's threads."""
        self.stream.close()

    def _on_cpu(self) -> Iterator[Any]:
        # What another iteration of the same stream does is not this one's to end.
        with closing(iter(self.stream)) as batches:
            for batch in batches:
                yield as_tensors(batch)

    def _on_device(self) -> Iterator[Any]:
        given_up, n_taken = self._state, 0
        if given_up is not None:
            # Its copies had run ahead.
            self.stream.load_state_dict(given_up)
        for batch in self._copied():
            n_taken += 1
            yield batch
        if given_up is not None and n_taken == 0:
            # It had been given up after its last batch.
            yield from self._copied()

    def _copied(self) -> Iterator[Any]:
        states: deque[State] = deque([self.stream.state_dict()])

        def arrays() -> Iterator[Any]:
            with closing(iter(self.stream)) as batches:
                for batch in batches:
                    states.append(self.stream.state_dict())
                    yield as_arrays(batch)

        self._state = states.popleft()
        for batch in self._copy(arrays()):
            self._state = states.popleft()
            yield batch
        self._state = None


class StreamDataset(IterableDataset[Any]):
    """A stream for ``DataLoader(dataset, batch_size=None, num_workers=...)``: every batch once, in the global order.

    Batches are dealt to the ranks of distributed training in turn, and those of a rank to its workers so that the loader
    hands them out in order. Tensors are as ``StreamLoader`` makes them, on the CPU. An iteration begins at the beginning of
    the epoch, but the first one after a state was loaded where that was; ``set_epoch`` goes on to another epoch, as with
    torch's samplers. Workers that stay (``persistent_workers``) learn both through shared memory.

    Args:
        stream: of all consumers together; its transform must be picklable where workers are not forked.
        shard: (rank, number of ranks); None: of ``torch.distributed`` where that is initialised, else (0, 1). Pickled by a
            rank, for workers that are not forked, it stays that rank's.
    """

    def __init__(self, stream: BatchStream, *, shard: tuple[int, int] | None = None) -> None:
        super().__init__()
        self._stream, self._shard = stream, shard
        self._begin = SharedBegin(**_begin_of(stream.state_dict()))
        self._running: BatchStream | None = None

    def __iter__(self) -> Iterator[Any]:
        """This process's share of the rest of the epoch."""
        # Now, not at the first batch: all workers of a loader come by here before any of its later iterations begins.
        worker = get_worker_info()
        self._begin.enter(None if worker is None else worker.seed - worker.id)
        rank, ranks = self._rank()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        # A loader asks its workers in turn: worker w of a rank makes that rank's batches w, w + workers, ...
        stream = self._stream.for_shard(rank + ranks * number, ranks * workers)
        stream.load_state_dict(self.state_after(0))
        self._running = stream
        return self._tensors(stream)

    def __len__(self) -> int:
        """Batches of an epoch for this rank, over all its workers."""
        return len(self._stream.for_shard(*self._rank()))

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of another epoch; before the iteration, since workers hold copies."""
        self._begin.set_epoch(epoch)
        self._running = None

    def state_dict(self) -> State:
        """Where the iteration of this process is; of a loader with workers the process that iterates says ``state_after``."""
        return dict(self._running.state_dict()) if self._running is not None else self.state_after(0)

    def state_after(self, n_batches: int) -> State:
        """The state once each rank has taken so many batches, from where an iteration begins."""
        state, last = self._stream.state_dict() | self._begin.read(), len(self._stream.for_shard(0, 1))
        return dict(state | {"position": min(last, state["position"] + n_batches * self._rank()[1])})

    def load_state_dict(self, state: State) -> None:
        """Go on at a state's next batch, with whatever number of ranks and workers; before the iteration."""
        self._stream.load_state_dict(state)
        self._begin.set(**_begin_of(state))
        self._running = None

    def _tensors(self, stream: BatchStream) -> Iterator[Any]:
        with closing(stream):
            for batch in stream:
                yield as_tensors(batch)
        if get_worker_info() is None:
            self._begin.rewind()
            self._running = None

    def __getstate__(self) -> dict[str, Any]:
        # Spawned workers are in no process group that they could ask.
        return self.__dict__ | {"_shard": self._known_rank(), "_running": None}

    def _rank(self) -> tuple[int, int]:
        return self._known_rank() or (0, 1)

    def _known_rank(self) -> tuple[int, int] | None:
        distributed = torch.distributed
        if self._shard is None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return self._shard


def _begin_of(state: State) -> dict[str, int]:
    return {name: state[name] for name in ("epoch", "position")}


def allocate_pinned(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Page-locked memory, for a stream's ``allocate``."""
    memory: npt.NDArray[np.uint8] = torch.empty(n_bytes, dtype=torch.uint8, pin_memory=True).numpy()
    return memory


def as_arrays(batch: Any) -> Any:
    """A stream's batch as a dict; anything else was made by a transform and stays."""
    if not isinstance(batch, Batch):
        return batch
    found: dict[str, Any] = {"number": batch.number, "keys": batch.keys, "weights": batch.weights}
    if batch.rows is not None:
        found["rows"] = batch.rows.rows
    if batch.blobs is not None:
        found |= {"buffer": batch.blobs.buffer, "offsets": batch.blobs.offsets}
    found |= {name: part for name in ("labels", "timestamps") if (part := getattr(batch, name)) is not None}
    if batch.columns is not None:
        if not found.keys().isdisjoint(batch.columns):
            taken = ", ".join(sorted(found.keys() & batch.columns.keys()))
            raise ValueError(f"a batch has {taken} of its own; give the columns of this name another one")
        found |= batch.columns
    return found


def as_tensors(batch: Any) -> Any:
    """A batch as ``StreamLoader`` gives it, in the stream's own memory."""
    if not isinstance(batch, Batch):
        return mapped(batch, as_tensor)
    # The shape of these is known; there is no need to look for arrays inside.
    arrays = as_arrays(batch)
    number = arrays.pop("number")
    return {"number": number} | {name: tensor_of(array) for name, array in arrays.items()}
