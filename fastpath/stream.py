"""Stream of the batches of a training set, epoch after epoch, prepared in the background."""

import copy
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import index
from typing import Any, Self

import numpy as np

from fastpath.array_types import ByteArray, KeyArray, WeightArray
from fastpath.batch import Batch, BatchMaker
from fastpath.order import BLOCK_SIZE, STATE_VERSION, Batching, Order, Shard, Shuffle, parse_state
from fastpath.rows.columns import Columns
from fastpath.store import SampleStore
from fastpath.threads.prefetch import OnDemand, Prefetched
from fastpath.threads.ring import Ring, new_memory
from fastpath.training_set import TrainingSet


class BatchStream:
    """Batches with keys and weights, in an order fixed by seed and epoch, whatever the number of threads and consumers.

    An epoch is one global sequence of batches; consumer i of n takes every n-th of them. An iteration continues at the stream's
    position: the beginning, or where a state or an earlier iteration ended; after the last batch it is the beginning again.

    Args:
        store: store of the samples.
        training_set: a ``TrainingSet``, keys, or (keys, weights).
        batch_size: samples of every batch but a short last one.
        shuffle: ``False``, ``True`` (the whole set) or ``"blocks"``, see ``Order``.
        seed: seed of the order.
        epoch: epoch of the order.
        drop_last: leave a short last batch out, unless it is the only one.
        prefetch: batches that wait for the consumer; 0 makes each on request, without threads.
        threads: background threads, each working on a batch of its own.
        shard: (i, n): index of this consumer, and number of consumers.
        part: (i, n): take the i-th of n parts of every batch, see ``Batching``; for readers that share each batch.
        block_size: positions in a block of ``"blocks"``.
        columns: deliver rows as typed columns.
        labels, timestamps: deliver them, too.
        transform: function whose result replaces a batch; called in the background threads.
        allocate: function that returns ``uint8[n]`` for the buffers of batches, for example page-locked.

    Iterating gives ``Batch``es or the results of ``transform``. A batch that is kept never changes: its memory is reused only
    when nothing refers to it. An error in the background is raised at the batch it concerns. A stream can be pickled and
    forked; the other process has threads and buffers of its own. One iteration runs at a time: a new one closes the previous.
    """

    def __init__(  # noqa: PLR0913 - all but the first three have defaults and are given by name
        self,
        store: SampleStore,
        training_set: TrainingSet | tuple[KeyArray, WeightArray] | KeyArray,
        batch_size: int,
        *,
        shuffle: Shuffle = True,
        seed: int = 0,
        epoch: int = 0,
        drop_last: bool = False,
        prefetch: int = 2,
        threads: int = 1,
        shard: tuple[int, int] = (0, 1),
        part: tuple[int, int] = (0, 1),
        block_size: int = BLOCK_SIZE,
        columns: Columns | None = None,
        labels: bool = False,
        timestamps: bool = False,
        transform: Callable[[Batch], Any] | None = None,
        allocate: Callable[[int], ByteArray] | None = None,
    ) -> None:
        prefetch, threads = index(prefetch), index(threads)
        shuffle = bool(shuffle) if isinstance(shuffle, np.bool_) else shuffle
        if prefetch < 0 or threads < 1:
            raise ValueError(f"prefetch must be at least 0 and threads at least 1, not {prefetch} and {threads}")
        self.store, self.training_set = store, _as_training_set(training_set)
        self.prefetch, self.threads, self.columns, self.transform = prefetch, threads, columns, transform
        self._labels, self._timestamps, self._allocate = labels, timestamps, allocate or new_memory
        # Python's own numbers: they go into states, and from there into JSON.
        self._batching = Batching(len(self.training_set), index(batch_size), bool(drop_last), part)
        numbers = {"block_size": index(block_size), "seed": index(seed), "epoch": index(epoch)}
        self._order = Order(self._batching.n, shuffle=shuffle, **numbers)
        self._shard = Shard(*shard)
        self._position, self._at_end = 0, False
        self._maker: BatchMaker | None = None
        self._iteration: weakref.ref[_Iteration] | None = None
        self._process = os.getpid()

    def __len__(self) -> int:
        """Number of batches of this consumer in a whole epoch."""
        return len(self._shard.numbers(0, len(self._batching)))

    def __iter__(self) -> "_Iteration":
        """Iterate over the batches from the position on."""
        self.close()
        if self._at_end:
            self._position, self._at_end = 0, False
        numbers = self._shard.numbers(self._position, len(self._batching))
        make = partial(_deliver, self._ready_maker(), self._order, self.transform)
        iteration = _Iteration(self, self._source(make, numbers), numbers)
        self._iteration = weakref.ref(iteration)
        return iteration

    @property
    def epoch(self) -> int:
        """Epoch that determines the order of the batches."""
        return self._order.epoch

    def set_epoch(self, epoch: int) -> None:
        """Move to the beginning of another epoch; the present epoch changes nothing, so a resumed one continues."""
        if epoch != self.epoch:
            self._go_to(index(epoch), 0)

    def state_dict(self) -> dict[str, Any]:
        """State of the stream after the taken batches, provided that all consumers have taken as many.

        ``position`` is the global number of the next batch. The values can be stored as JSON.
        """
        return {
            "version": STATE_VERSION,
            "n": self._order.n,
            "batch_size": self._batching.batch_size,
            "seed": self._order.seed,
            "epoch": self._order.epoch,
            "shuffle": self._order.shuffle,
            "block_size": self._order.block_size,
            "drop_last": self._batching.drop_last,
            "position": self._position,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at the position of a state, whatever the numbers of consumers.

        Raises ``ValueError``, naming the field, for a state of another set, batch size, seed or shuffle.
        """
        self._go_to(*parse_state(state, self.state_dict(), len(self._batching)))

    def for_shard(self, shard: int, count: int) -> Self:
        """Stream at the same position for consumer ``shard`` of ``count``, with threads and buffers of its own."""
        other = copy.copy(self)
        other._shard = Shard(shard, count)
        return other

    def close(self) -> None:
        """End the threads of a running iteration, and wait for them. The position stays."""
        running = self._iteration() if self._iteration is not None else None
        if running is not None:
            running.close()
        self._iteration = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_maker": None, "_iteration": None}

    def __repr__(self) -> str:
        return f"BatchStream({self.training_set!r}, {self._batching}, {self._order!r}, {self._shard})"

    @property
    def _ahead(self) -> int:
        # Waiting batches, and one in the hands of each thread but the first.
        return self.prefetch + self.threads - 1

    def _source(self, make: Callable[[int], Any], numbers: range) -> Prefetched[Any] | OnDemand[Any]:
        if self.prefetch == 0:
            return OnDemand(make, numbers)
        return Prefetched(make, numbers, ahead=self._ahead, threads=self.threads)

    def _ready_maker(self) -> BatchMaker:
        # A forked process needs buffers of its own: threads of the parent may hold the locks of the old ones.
        if self._maker is None or self._process != os.getpid():
            self._process = os.getpid()
            self._maker = BatchMaker(
                self.store,
                self.training_set,
                self._batching,
                columns=self.columns,
                labels=self._labels,
                timestamps=self._timestamps,
                # The consumer holds one more, and perhaps still the one before.
                ring=lambda: Ring(self._ahead + 2, self._allocate),
            )
        return self._maker

    def _go_to(self, epoch: int, position: int) -> None:
        self.close()
        order = self._order
        self._order = Order(order.n, shuffle=order.shuffle, block_size=order.block_size, seed=order.seed, epoch=epoch)
        self._position, self._at_end = position, False

    def _took(self, number: int, *, last: bool) -> None:
        self._position, self._at_end = self._shard.after(number, len(self._batching)), last

    def _ended(self, iteration: "_Iteration") -> None:
        if self._iteration is not None and self._iteration() is iteration:
            self._position, self._at_end = len(self._batching), True


class _Iteration(Iterator[Any]):
    def __init__(self, stream: BatchStream, source: "Prefetched[Any] | OnDemand[Any]", numbers: range) -> None:
        self._stream, self._source, self._numbers, self._n_taken = stream, source, numbers, 0

    def __next__(self) -> Any:
        if self._n_taken == len(self._numbers):
            self._stream._ended(self)
            raise StopIteration
        try:
            item = next(self._source)
            self._n_taken += 1
            self._stream._took(self._numbers[self._n_taken - 1], last=self._n_taken == len(self._numbers))
        except KeyboardInterrupt:
            # The interrupt may have come between any two statements. The stream stays usable, this iteration does not.
            self._source.close()
            raise
        return item

    def close(self) -> None:
        self._source.close()


def _deliver(maker: BatchMaker, order: Order, transform: Callable[[Batch], Any] | None, number: int) -> Any:
    batch = maker.make(order, number)
    if transform is None:
        return batch
    try:
        return transform(batch)
    except StopIteration as error:
        # A StopIteration would look like the end of the epoch.
        raise RuntimeError("the transform raised StopIteration") from error


def _as_training_set(samples: TrainingSet | tuple[KeyArray, WeightArray] | KeyArray) -> TrainingSet:
    if isinstance(samples, TrainingSet):
        return samples
    return TrainingSet.of(*samples) if isinstance(samples, tuple) else TrainingSet.of(samples)
