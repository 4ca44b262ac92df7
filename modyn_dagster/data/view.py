"""A dataset as a pipeline sees it at one moment: an immutable list of ingested batches."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from fastpath.format.labels.label_file import LabelArray
from modyn_dagster.catalog.batches import BatchRow, changed_batches
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.data.delays.delayed_labels import DelayedLabels
from modyn_dagster.data.deletion.deleted_lists import DeletedLists
from modyn_dagster.data.deletion.holes import HOLE, Holes
from modyn_dagster.data.known_batches import BatchColumns
from modyn_dagster.data.label_files import is_labelled
from modyn_dagster.data.reader import SampleReader
from modyn_dagster.data.shared_data import SharedData
from modyn_dagster.data.split import EVALUATE, TRAIN, side_of
from modyn_dagster.keys import MAX_BATCH_SIZE, ORIGIN, KeyArray, KeyRange, key_of, ordinal_of, ordinals_of, positions_of
from modyn_dagster.spec.base import timedelta_of
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.learning.label_delay import LabelDelay

Positions = npt.NDArray[np.int64]

#: Keys of one chunk.
CHUNK: Final = 100_000
#: Position before all arrivals.
_NOTHING_KNOWN: Final = -1


class DatasetView:
    """Keys, times and samples of the batches up to one ordinal. The split decides the use of each sample.

    Deleted samples stay in counts and times, so that a deletion changes no decision. They are not selected, read or evaluated.
    Holes are deleted samples that are on no side of the split, in no count and in no time.

    Args:
        engine: of the ``modyn`` database.
        home: folder with the indexes and shards.
        row: of the dataset.
        spec: of the dataset.
        root: folder or URL of the dataset's files.
        batches: in ordinal order, their facts without the holes.
        shared: of a view of at least these batches.
        columns: facts of the batches; default: made of their rows when they are asked for.
        strict: compare the bytes of each file with those of its ingestion when it is first opened.
        position: position in the sequence of arrivals that labels are read as of; default: that of the newest batch.
        holes: None where every sample counts; those of the shared data, where the view shares any.
        delay: simulated delay of labels that come with their samples; that of the shared data, too.
    """

    def __init__(  # noqa: PLR0913 - the last ones have defaults and are given by name
        self,
        engine: sa.Engine,
        home: Path,
        row: DatasetRow,
        spec: DatasetSpec,
        root: str,
        batches: Sequence[BatchRow],
        shared: SharedData | None = None,
        columns: BatchColumns | None = None,
        *,
        strict: bool = False,
        position: int | None = None,
        holes: Holes | None = None,
        delay: LabelDelay | None = None,
    ) -> None:
        self._position = position
        self.row = row
        self.spec = spec
        self.batches = batches
        self.engine = engine
        self.home = home
        self._root = root
        data = (engine, home, row, spec, root, batches, columns)
        self._shared = shared or SharedData(*data, strict=strict, holes=holes, delay=delay)

    @property
    def columns(self) -> BatchColumns:
        """Facts of the batches, one element per batch."""
        return self._shared.columns.head(len(self.batches))

    @property
    def reader(self) -> SampleReader:
        """Reader of these batches, and maybe of later ones, with labels as of the view's position."""
        return self._shared.reader(self.label_position)

    @property
    def label_position(self) -> int | None:
        """Position in the sequence of arrivals that labels are read as of; None where they arrive with their samples."""
        if not self._shared.have_positions:
            return None
        return int(self.arrivals[-1:].max(initial=-1)) if self._position is None else self._position

    @property
    def arrivals(self) -> npt.NDArray[np.int64]:
        """Positions of the batches in the sequence of arrivals, ``int64[n]``; -1 where labels arrive with their samples."""
        return self._shared.arrivals(len(self.batches))

    @property
    def reader_without_late_labels(self) -> SampleReader:
        """Reader of the labels that came with the samples, whatever delay is simulated; of none where they arrive later."""
        return self._shared.reader(None if self._shared.delay is not None or self.label_position is None else _NOTHING_KNOWN)

    @property
    def newest_label_position(self) -> int | None:
        """Position of the newest batch or of the newest complete labels; None where labels arrive with their samples."""
        if self.label_position is None:
            return None
        return max([self.label_position, *(file.arrival for file in self._shared.label_files[-1:])])

    def labelled_as_of(self, position: int | None) -> "DatasetView":
        """The same batches with labels as of another position."""
        if position == self.label_position:
            return self
        return DatasetView(self.engine, self.home, self.row, self.spec, self._root, self.batches, self._shared, position=position)

    def labels(self, batch: BatchRow) -> tuple[LabelArray, npt.NDArray[np.bool_]]:
        """Labels of a batch as of the view's position, ``int64[n]`` or ``float64[n]``, and ``bool[n]``: which samples have one.

        Where a sample has none, its value is -1 or NaN.
        """
        position, n = self.label_position, int(batch.n_samples or 0)
        values = self._stored_labels(batch) if position is None else self._shared.known(position).of(batch.ordinal, n)
        return values, is_labelled(values)

    def _stored_labels(self, batch: BatchRow) -> LabelArray:
        """Labels that came with the samples of a batch; -1 for all where there are none."""
        index = self._shared.index(batch.ordinal)
        stored = index.labels if index.labels is not None else index.targets
        return np.full(int(batch.n_samples or 0), -1) if stored is None else stored

    def labels_at(self, keys: KeyArray) -> LabelArray:
        """Labels of samples by key, deleted or not, as of the view's position; -1 or NaN where a sample has none."""
        is_target = self.spec.label is not None and self.spec.label.kind == "target"
        out: LabelArray = np.empty(len(keys), np.float64) if is_target else np.empty(len(keys), np.int64)
        if len(keys) == 0:
            return out
        known = None if self.label_position is None else self._shared.known(self.label_position)
        ordinals = ordinals_of(keys)
        order = np.argsort(ordinals, kind="stable")
        found, first = np.unique(ordinals[order], return_index=True)
        for batch, rows in zip(self.batches_at(found.tolist()), np.split(order, first[1:]), strict=True):
            n, positions = int(batch.n_samples or 0), positions_of(keys[rows])
            out[rows] = self._stored_labels(batch)[positions] if known is None else known.take(batch.ordinal, n, positions)
        return out

    def are_older(self, keys: KeyArray, age: np.timedelta64) -> npt.NDArray[np.bool_]:
        """Test samples by key for an age at the view's position, ``bool[n]``: the time from them to the newest of then."""
        position = self.label_position
        now = self.time_reached if position is None else self._shared.time_at(position)
        if now is None or len(keys) == 0:
            return np.zeros(len(keys), dtype=bool)
        return np.asarray(self.reader.store.timestamps(keys) + age <= now)

    def label_version(self, batch: BatchRow) -> int:
        """Version of the labels of a batch at the view's position, which grows with it: with it alone its labels can change."""
        position = self.label_position
        return 0 if position is None else self._shared.known(position).version(batch.ordinal)

    def largest_class(self) -> int:
        """Largest class that any label has had up to the view's position; where labels arrive later, or are delayed.

        Purged labels that arrived later are included. -1 without labels.
        """
        position = self.label_position if self.label_position is not None else -1
        if isinstance(known := self._shared.known(position), DelayedLabels):
            return known.largest_class
        files = [file for file in self._shared.label_files if file.arrival <= position]
        holes = self._holes
        return max((file.largest if holes is None else holes.largest_class(file) for file in files), default=-1)

    @property
    def deleted(self) -> DeletedLists:
        """Deleted positions of these batches."""
        return self._shared.deleted

    def batches_at(self, ordinals: Iterable[int]) -> list[BatchRow]:
        """Batches by ordinal, in the given order; ordinals of no batch are left out."""
        found = []
        for ordinal in ordinals:
            place = bisect_left(self.batches, ordinal, key=_ordinal)
            if place < len(self.batches) and self.batches[place].ordinal == ordinal:
                found.append(self.batches[place])
        return found

    def renewed(self) -> "DatasetView":
        """The same batches after later deletions and purges; this view itself if there were none."""
        with transaction(self.engine) as conn:
            changed = changed_batches(conn, self.row.id, self.batches)
            is_current = not changed and not self._shared.has_other_label_files(conn)
        if is_current:
            return self
        holes = self._holes
        if holes is not None:
            changed = {ordinal: holes.without(row) for ordinal, row in changed.items()}
        batches = [changed.get(batch.ordinal, batch) for batch in self.batches]
        place, strict, delay = (self.engine, self.home, self.row, self.spec, self._root), self._shared.strict, self._shared.delay
        view = DatasetView(*place, batches, strict=strict, position=self._position, holes=holes, delay=delay)
        view._shared.sides = self._shared.sides
        return view

    def up_to(self, ordinal: int) -> "DatasetView":
        """The dataset as it was when this batch was its newest, with labels as of then."""
        if ordinal >= self.last_ordinal and self._position is None:
            return self
        earlier = self.batches[: bisect_right(self.batches, ordinal, key=_ordinal)]
        return DatasetView(self.engine, self.home, self.row, self.spec, self._root, earlier, self._shared)

    @property
    def last_ordinal(self) -> int:
        """Ordinal of the newest batch; -1 when there is none."""
        return self.batches[-1].ordinal if self.batches else -1

    @property
    def last_key(self) -> int:
        """The newest key; ``ORIGIN`` when there is none."""
        return self.last_key_of(self.last_ordinal)

    def last_key_of(self, ordinal: int) -> int:
        """The newest key in the batches up to an ordinal; ``ORIGIN`` when there is none."""
        n_earlier = bisect_right(self.batches, ordinal, key=_ordinal)
        if n_earlier == 0:
            return ORIGIN
        newest = self.batches[n_earlier - 1]
        return key_of(newest.ordinal, int(newest.n_samples or 0) - 1)

    @property
    def time_reached(self) -> np.datetime64 | None:
        """Largest sample time of the stream, on any side of the split; None when there are no batches."""
        times = self.columns.last
        times = times[~np.isnat(times)]
        return times.max() if len(times) else None

    def keys_on(self, side: int, window: KeyRange, *, labelled: bool = False) -> KeyArray:
        """Keys of a window on one side of the split, in key order and without deleted ones, ``uint64[n]``.

        ``labelled`` leaves out samples whose labels arrive later and are not known at the view's position.
        """
        return np.concatenate([np.empty(0, np.uint64), *(keys for keys, _ in self.scan(window, side, labelled=labelled))])

    def count(self, window: KeyRange, side: int, *, labelled: bool = False) -> int:
        """Number of keys that ``keys_on`` returns."""
        return sum(len(keys) for keys, _ in self.scan(window, side, labelled=labelled))

    def scan(
        self, window: KeyRange, side: int, *, labelled: bool = False
    ) -> Iterator[tuple[KeyArray, npt.NDArray[np.int64] | None]]:
        """Keys as by ``keys_on``, in chunks, with their class indices; None where the dataset has no classes.

        Classes that arrive later come with ``labelled`` only; otherwise no label file is read.
        """
        position = self.label_position
        known = self._shared.known(position) if labelled and position is not None else None
        for batch in self._touched(window):
            base, n = key_of(batch.ordinal, 0), int(batch.n_samples or 0)
            stop = min(n, window.until + 1 - base)
            with_samples = self._shared.index(batch.ordinal).labels if position is None else None
            for begin in range(max(0, window.after + 1 - base), stop, CHUNK):
                span = slice(begin, min(begin + CHUNK, stop))
                keys = np.arange(base + span.start, base + span.stop, dtype=np.uint64)
                kept = (self.sides(keys) == side) & ~self.deleted.among(keys)
                values: LabelArray | None = None if with_samples is None else with_samples[span]
                if known is not None:
                    values = known.take(batch.ordinal, n, span)
                    kept &= is_labelled(values)
                labels = None if values is None or values.dtype != np.int64 else values.astype(np.int64, copy=False)
                if kept.any():
                    yield keys[kept], None if labels is None else labels[kept]

    def time_span(self, window: KeyRange) -> tuple[np.datetime64, np.datetime64] | None:
        """Smallest and largest time of the train samples of a window, deleted ones included; None when it has none."""
        spans = []
        for batch in self._touched(window):
            times = self._shared.index(batch.ordinal).times[self._inside(batch, window, TRAIN)]
            if len(times):
                spans.append((times.min(), times.max()))
        return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None

    def evaluation_positions(self, batch: BatchRow) -> Positions:
        """Positions of a batch for evaluation: the ``evaluate`` side, or all where the split has none.

        Deleted ones are included, so that a deletion does not move intervals.
        """
        return self.positions_on(batch, EVALUATE if self.spec.split.evaluate > 0 else None)

    def positions_on(self, batch: BatchRow, side: int | None) -> Positions:
        """Positions of a batch on one side of the split, or all; deleted ones are included."""
        return self._inside(batch, KeyRange(ORIGIN, key_of(batch.ordinal, MAX_BATCH_SIZE - 1)), side)

    def times(self, batch: BatchRow) -> npt.NDArray[np.datetime64]:
        """Times of all samples of a batch, ``datetime64[us]``, ascending."""
        return self._shared.index(batch.ordinal).times

    def attribute(self, name: str, batch: BatchRow) -> npt.NDArray[np.object_]:
        """An attribute of all samples of a batch as text; None where a sample has none."""
        return self._shared.attribute(name, batch.ordinal)

    def sides(self, keys: KeyArray) -> npt.NDArray[np.uint8]:
        """Side of the split of each key; ``HOLE`` for a hole."""
        sides = side_of(keys, self.spec.split)
        if self._holes is not None:
            sides[self._holes.among(keys)] = HOLE
        return sides

    @property
    def _holes(self) -> Holes | None:
        return self._shared.holes

    def _touched(self, window: KeyRange) -> Sequence[BatchRow]:
        """Batches that a window may have keys in: only these are opened, however many there are."""
        first = bisect_left(self.batches, ordinal_of(window.after + 1), key=_ordinal)
        return self.batches[first : bisect_right(self.batches, ordinal_of(window.until), key=_ordinal)]

    def _inside(self, batch: BatchRow, window: KeyRange, side: int | None) -> Positions:
        first = max(0, window.after + 1 - key_of(batch.ordinal, 0))
        stop = min(int(batch.n_samples or 0), window.until + 1 - key_of(batch.ordinal, 0))
        if first >= stop or (side is None and self._holes is None):
            return np.arange(first, max(first, stop))
        sides = self._shared.sides(batch.ordinal)[first:stop]
        return first + np.flatnonzero(sides != HOLE if side is None else sides == side)


def mature_keys(view: DatasetView, keys: KeyArray, maturity: str | None) -> KeyArray:
    """Keys of the samples of at least an age, a duration, at the view's position; all where labels come with their samples."""
    if maturity is None or view.label_position is None:
        return keys
    return keys[view.are_older(keys, timedelta_of(maturity))]


def _ordinal(batch: BatchRow) -> int:
    return batch.ordinal
