"""A batch stream as a dataset of torch's ``DataLoader``: shared by ranks and workers, in the global order, resumable."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import torch
from torch.utils.data import IterableDataset, get_worker_info

from fastpath import Batch, BatchStream
from modyn_dagster.training.inputs.device import as_tensor, mapped, tensor_of

_MASK: Final = (1 << 62) - 1


class SharedPosition:
    """Epoch and position at which an iteration begins, in memory that forked and spawned workers share.

    A set position holds for one iteration; later ones begin at 0. Only workers notice the beginning of an iteration. The first
    of them records its number, and the others recognise it.
    """

    def __init__(self, epoch: int, position: int) -> None:
        # Epoch, position, and the iteration that begins there (0: the next one, whichever it is).
        self._values = torch.tensor([epoch, position, 0], dtype=torch.int64)
        self._values.share_memory_()  # type: ignore[no-untyped-call]  # torch has no type for it
        self._n_entered = 0

    def read(self) -> dict[str, int]:
        """Return ``epoch`` and ``position`` of the running iteration, or of the next one if none began since they were set."""
        epoch, position, _ = self._values.tolist()
        return {"epoch": epoch, "position": position}

    def set(self, epoch: int, position: int) -> None:
        """Set epoch and position of the next iteration."""
        self._values.copy_(torch.tensor([epoch, position, 0]))

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of another epoch; the same one changes nothing."""
        if epoch != int(self._values[0]):
            self.set(epoch, 0)

    def rewind(self) -> None:
        """End an iteration: the next one begins at 0."""
        self._values[1] = 0

    def begin_iteration(self, loader: int | None) -> None:
        """Begin an iteration in this process; ``loader`` is a number that the workers of a loader share, None without one."""
        self._n_entered += 1
        # Persistent workers began equally many iterations; new ones have a loader with another number.
        iteration = 1 + ((0 if loader is None else loader) + self._n_entered) % _MASK
        begun = int(self._values[2])
        if begun not in (0, iteration):
            # Written before the iteration's number: a reader of the number sees this.
            self._values[1] = 0
        self._values[2] = iteration


def as_arrays(batch: Any) -> Any:
    """Convert a stream's batch to a dict; results of a transform stay."""
    if not isinstance(batch, Batch):
        return batch
    arrays: dict[str, Any] = {"number": batch.number, "keys": batch.keys, "weights": batch.weights}
    if batch.rows is not None:
        arrays["rows"] = batch.rows.rows
    if batch.blobs is not None:
        arrays |= {"buffer": batch.blobs.buffer, "offsets": batch.blobs.offsets}
    arrays |= {name: part for name in ("labels", "timestamps") if (part := getattr(batch, name)) is not None}
    if batch.columns is not None:
        if not arrays.keys().isdisjoint(batch.columns):
            reserved = ", ".join(sorted(arrays.keys() & batch.columns.keys()))
            raise ValueError(f"columns must not be named {reserved}: a batch has fields of these names; rename the columns")
        arrays |= batch.columns
    return arrays


def as_tensors(batch: Any) -> Any:
    """Convert a batch to the tensors of ``StreamLoader``, in the stream's own memory."""
    if not isinstance(batch, Batch):
        return mapped(batch, as_tensor)
    # A stream's batch has no nested arrays.
    arrays = as_arrays(batch)
    number = arrays.pop("number")
    return {"number": number} | {name: tensor_of(array) for name, array in arrays.items()}


State = dict[str, Any]


class StreamDataset(IterableDataset[Any]):
    """A stream for ``DataLoader(dataset, batch_size=None, num_workers=...)``: every batch once, in the global order.

    Batches are dealt to the ranks of distributed training in turn, and those of a rank to its workers so that the loader
    hands them out in order. Tensors are as ``StreamLoader`` makes them, on the CPU. An iteration begins at the beginning of
    the epoch, but the first one after a state was loaded where that was; ``set_epoch`` goes on to another epoch, as with
    torch's samplers. Workers that stay (``persistent_workers``) learn both through shared memory.

    Args:
        stream: stream of all consumers; its transform must be picklable where workers are not forked.
        shard: rank and number of ranks; None takes those of ``torch.distributed`` if initialised, else (0, 1). Pickling for
            workers that are not forked keeps the rank.
    """

    def __init__(self, stream: BatchStream, *, shard: tuple[int, int] | None = None) -> None:
        super().__init__()
        self._stream, self._shard = stream, shard
        self._begin = SharedPosition(**_begin_of(stream.state_dict()))
        self._running: BatchStream | None = None

    def __iter__(self) -> Iterator[Any]:
        """Iterate over this process's share of the rest of the epoch."""
        # At the call, not at the first batch: all workers of a loader pass here before a later iteration begins.
        worker = get_worker_info()
        self._begin.begin_iteration(None if worker is None else worker.seed - worker.id)
        rank, ranks = self._rank()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        # A loader takes batches from its workers in turn: worker w of a rank makes that rank's batches w, w + workers, ...
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
        """Position of this process's iteration; with loader workers, the iterating process has it as ``state_after``."""
        return dict(self._running.state_dict()) if self._running is not None else self.state_after(0)

    def state_after(self, n_batches: int) -> State:
        """Return the state after ``n_batches`` of every rank, from the beginning of an iteration."""
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
        # Spawned workers are in no process group.
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
