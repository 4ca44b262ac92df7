"""A batch stream under torch's ``DataLoader``: dealt to ranks and workers, in the global order."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from fastpath import BatchStream
from modyn_dagster.training.shared_begin import SharedBegin
from modyn_dagster.training.stream_tensors import as_tensors

State = dict[str, Any]


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
