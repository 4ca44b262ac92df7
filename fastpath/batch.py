"""Batch of a stream, and the maker that assembles batches in slabs of a ring."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fastpath.array_types import ByteArray, KeyArray, WeightArray
from fastpath.order import Batching, Order
from fastpath.rows.columns import Columns
from fastpath.rows.results import Blobs, FixedRows
from fastpath.store import SampleStore
from fastpath.threads.ring import Ring, rounded_up
from fastpath.training_set import TrainingSet

_NO_KEYS: Final = np.empty(0, dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples of a training set, in the order of the epoch.

    Attributes:
        number: number of the batch in the epoch, from 0.
        keys: ``uint64[b]``.
        weights: ``float32[b]``.
        rows: samples of one width, unless the stream has ``columns``.
        blobs: samples of any length.
        columns: rows as typed columns, where the stream has ``Columns``.
        labels: ``int64[b]`` class indices or ``float64[b]`` targets, if requested and present.
        timestamps: ``datetime64[us][b]``, if requested.
    """

    number: int
    keys: KeyArray
    weights: WeightArray
    rows: FixedRows | None = None
    blobs: Blobs | None = None
    columns: dict[str, npt.NDArray[Any]] | None = None
    labels: npt.NDArray[Any] | None = None
    timestamps: npt.NDArray[np.datetime64] | None = None

    def __len__(self) -> int:
        return len(self.keys)


class BatchMaker:
    """Maker of any batch of any epoch; several threads may use it at once.

    All arrays of a batch are views of one slab, the blobs of another.
    """

    def __init__(
        self,
        store: SampleStore,
        training_set: TrainingSet,
        batching: Batching,
        *,
        columns: Columns | None,
        labels: bool,
        timestamps: bool,
        ring: Callable[[], Ring],
    ) -> None:
        self._store, self._training_set, self._batching = store, training_set, batching
        self._columns, self._labels, self._timestamps = columns, labels, timestamps
        self._ring, self._blob_ring = ring(), ring()
        # Bytes of a slab and the type of labels. Not a cached property: its lock, one for all objects of the class, could stay
        # locked after a fork.
        self._cached_layout: tuple[int, np.dtype[Any] | None] | None = None

    def make(self, order: Order, number: int) -> Batch:
        """Make batch ``number`` of the epoch with this order."""
        start, stop = self._batching.part_bounds(number)
        n = stop - start
        n_bytes, label_dtype = self._layout()
        slab = _Slab(self._ring.take(n_bytes))
        positions = order.positions(start, stop, out=slab.array((n,), np.dtype(np.int64)))
        keys = slab.array((n,), np.dtype(np.uint64))
        weights = slab.array((n,), np.dtype(np.float32))
        self._training_set.take_into(positions, keys, weights)
        rows, blobs, columns = self._samples(keys, slab)
        labels = self._labels_of(keys, label_dtype, slab)
        return Batch(number, keys, weights, rows, blobs, columns, labels, self._times_of(keys, slab))

    def _layout(self) -> tuple[int, np.dtype[Any] | None]:
        if self._cached_layout is None:
            labels = self._store.labels(_NO_KEYS) if self._labels else None
            dtype = None if labels is None else labels.dtype
            self._cached_layout = self._n_bytes(dtype), dtype
        return self._cached_layout

    def _n_bytes(self, label_dtype: np.dtype[Any] | None) -> int:
        # The largest batch, whose arrays each begin at a multiple of 64.
        n = min(self._batching.n, self._batching.batch_size)
        widths = [8, 8, 4, 8 * (label_dtype is not None), 8 * self._timestamps]
        if self._columns is not None:
            return sum(rounded_up(n * width) for width in widths) + self._columns.nbytes(n)
        return sum(rounded_up(n * width) for width in (*widths, self._store.width or 0))

    def _samples(
        self, keys: KeyArray, slab: "_Slab"
    ) -> tuple[FixedRows | None, Blobs | None, dict[str, npt.NDArray[Any]] | None]:
        # The threads of a stream share the work by batches, so each request runs in one thread.
        n = len(keys)
        if self._columns is not None:
            columns = self._columns.within(slab.rest(self._columns.nbytes(n)), n)
            self._store.columns_into(keys, self._columns, columns, threads=1)
            return None, None, columns
        width = self._store.width
        if width is None:
            return None, self._store.read_blobs(keys, out=self._blob_ring.take, threads=1), None
        rows = slab.array((n, width), np.dtype(np.uint8))
        self._store.read_into(keys, rows, threads=1)
        return FixedRows(rows), None, None

    def _labels_of(self, keys: KeyArray, dtype: np.dtype[Any] | None, slab: "_Slab") -> npt.NDArray[Any] | None:
        if dtype is None:
            return None
        labels = slab.array(keys.shape, dtype)
        self._store.labels_into(keys, labels, threads=1)
        return labels

    def _times_of(self, keys: KeyArray, slab: "_Slab") -> npt.NDArray[np.datetime64] | None:
        if not self._timestamps:
            return None
        times = slab.array(keys.shape, np.dtype("datetime64[us]"))
        self._store.timestamps_into(keys, times, threads=1)
        return times


class _Slab:
    """Arrays laid one after the other in a slab."""

    def __init__(self, memory: ByteArray) -> None:
        self._memory, self._at = memory, 0

    def rest(self, n_bytes: int) -> ByteArray:
        part = self._memory[self._at : self._at + n_bytes]
        self._at += rounded_up(n_bytes)
        return part

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        n = shape[0] if len(shape) == 1 else shape[0] * shape[1]
        return self.rest(n * dtype.itemsize).view(dtype).reshape(shape)
