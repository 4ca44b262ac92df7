"""Reading of a training set in batches of a model's inputs, ahead of the training in background threads."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Literal, TypeVar, cast

import numpy as np
import numpy.typing as npt

from fastpath import Batch as Gathered
from fastpath import BatchStream, Blobs, FixedRows, Order
from fastpath.order import Batching
from modyn_dagster.data.reader import SampleReader
from modyn_dagster.data.samples import Samples
from modyn_dagster.keys import KeyArray
from modyn_dagster.spec.training import TaskKind
from modyn_dagster.training.data import Reader, TrainingData
from modyn_dagster.training.inputs.features import Features
from modyn_dagster.training.memory import Arrays
from modyn_dagster.training.parsing.parser import Where
from modyn_dagster.training.transforms.chain import Transforms
from modyn_dagster.training.transforms.labels import Relabeling, Truth, checked_truth, truth_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LoadedBatch:
    """Samples of a batch: ``uint64[n]`` keys, ``float32[n]`` weights, inputs by name, and the truth."""

    keys: KeyArray
    weights: npt.NDArray[np.float32]
    inputs: Arrays
    truth: Truth


@dataclass(frozen=True, slots=True)
class EpochOrder:
    """Order of one epoch, from batch ``start`` on; ``part`` (i, n) is the i-th of n parts of every batch."""

    batch_size: int
    shuffle: bool | Literal["blocks"] = False
    block_size: int = 65_536
    seed: int = 0
    epoch: int = 0
    drop_last: bool = False
    start: int = 0
    part: tuple[int, int] = (0, 1)


@dataclass(frozen=True, slots=True)
class Reading:
    """Reading of a training set as ``LoadedBatch``es; all paths give the same numbers.

    Rows with a NumPy dtype (fixed rows, Parquet) become arrays as they are gathered, other samples in the same threads
    afterwards. Readers other than ``SampleReader`` are called by the training thread.
    """

    data: TrainingData
    features: Features
    relabeling: Relabeling
    transforms: Transforms
    source: str

    @property
    def kind(self) -> TaskKind:
        """Kind of the learning task."""
        return self.relabeling.kind

    def __call__(self, walk: EpochOrder, then: Callable[[LoadedBatch], T]) -> Iterator[T]:
        """Yield ``then`` of every batch, in order. It runs in the prefetching threads."""
        reader = self.data.reader
        if not isinstance(reader, SampleReader):
            yield from (then(loaded) for loaded in self._read_in_thread(walk))
            return
        source = reader.resident if self.data.fast_path.resident else reader
        with closing(self._stream(source, walk, then)) as stream:
            yield from stream

    def _read_in_thread(self, walk: EpochOrder) -> Iterator[LoadedBatch]:
        n = len(self.data)
        order = Order(n, shuffle=walk.shuffle, block_size=walk.block_size, seed=walk.seed, epoch=walk.epoch)
        batching = Batching(n, walk.batch_size, walk.drop_last, walk.part)
        for number in range(walk.start, len(batching)):
            keys, weights = self.data.chosen.take(order.positions(*batching.part_bounds(number)))
            samples = self.data.reader.read(keys)
            yield LoadedBatch(keys, weights, self.features(samples), self._truth_of(samples))

    def _stream(self, reader: SampleReader, walk: EpochOrder, then: Callable[[LoadedBatch], T]) -> BatchStream:
        dtype, parsing = reader.store.dtype, self.features.parsing
        # Several columns of the truth are parsed together with the inputs.
        in_rows = dtype is not None and parsing.parser is None and not self.relabeling.columns
        columns = self.features.of_rows(dtype) if dtype is not None and in_rows else None

        def transform(batch: Gathered) -> T:
            if batch.columns is not None:
                return then(self._labelled(batch, dict(batch.columns)))
            # Samples of equal length come as rows.
            raw = cast(FixedRows | Blobs, batch.rows if batch.rows is not None else batch.blobs)
            if not parsing.of_columns:
                return then(self._labelled(batch, self.features.of_blobs(batch.keys, raw)))
            samples = reader.decode(batch.keys, raw)
            return then(LoadedBatch(batch.keys, batch.weights, self.features(samples), self._truth_of(samples)))

        stream = BatchStream(
            reader.store,
            self.data.chosen,
            walk.batch_size,
            shuffle=walk.shuffle,
            seed=walk.seed,
            epoch=walk.epoch,
            drop_last=walk.drop_last,
            part=walk.part,
            prefetch=self.data.fast_path.prefetch,
            threads=self.data.fast_path.threads,
            block_size=walk.block_size,
            columns=columns,
            labels=columns is not None or not parsing.of_columns,
            transform=transform,
        )
        stream.load_state_dict(stream.state_dict() | {"position": walk.start})
        return stream

    def _labelled(self, batch: Gathered, inputs: Arrays) -> LoadedBatch:
        truth = checked_truth(batch.labels, batch.keys, self.relabeling.given, source=self.source)
        return LoadedBatch(batch.keys, batch.weights, inputs, self.relabeling.learnt(truth, batch.keys))

    def _truth_of(self, samples: Samples) -> Truth:
        if self.relabeling.columns:
            return truth_of(self.relabeling.judged(samples), self.kind, source=self.source)
        truth = truth_of(samples, self.relabeling.given, source=self.source)
        return self.relabeling.learnt(truth, samples.keys)


def place_finder(reader: Reader) -> Where | None:
    """Finder of a sample's file and offset for error messages; None if the reader does not read files."""
    return reader.store.where if isinstance(reader, SampleReader) else None
