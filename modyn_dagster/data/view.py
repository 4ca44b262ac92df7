"""What a pipeline sees of a dataset at one moment: an immutable list of ingested batches."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from fastpath.format.index import BatchIndex
from modyn_dagster.catalog.batches import BatchRow, changed_batches, mtimes_in_place
from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.catalog.database.mapping import as_datetime64
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.samples import iter_values
from modyn_dagster.catalog.tables import sample
from modyn_dagster.data.deleted_lists import DeletedLists
from modyn_dagster.data.reader import SampleReader
from modyn_dagster.data.split import EVALUATE, TRAIN, side_of
from modyn_dagster.keys import MAX_BATCH_SIZE, ORIGIN, KeyArray, KeyRange, key_of, keys_of, positions_of
from modyn_dagster.spec.dataset import DatasetSpec, Split

Positions = npt.NDArray[np.int64]

#: Keys of one chunk.
CHUNK: Final = 100_000


class DatasetView:
    """Keys, times and samples of the batches up to one ordinal. The split decides who sees which sample.

    Deleted samples stay in counts and times, so that a deletion changes no decision; they are not selected, read or judged.
    """

    def __init__(
        self, engine: sa.Engine, home: Path, row: DatasetRow, spec: DatasetSpec, root: str, batches: Sequence[BatchRow]
    ) -> None:
        self.row = row
        self.spec = spec
        self.batches = list(batches)
        self.engine = engine
        self.home = home
        self._root = root
        self.deleted = DeletedLists(home, row.name, batches)
        # Not methods: views share these, and one that is let go should not stay, with its reader's files, for their sake.
        by_ordinal = {batch.ordinal: batch for batch in batches}
        self._index = lru_cache(maxsize=256)(partial(_open_index, home, by_ordinal))
        self._sides = lru_cache(maxsize=256)(partial(_split, spec.split, by_ordinal))
        self._attributes = lru_cache(maxsize=1024)(partial(_read_attribute, engine, row.id, by_ordinal))

    @cached_property
    def reader(self) -> SampleReader:
        """Samples of these batches by key."""
        with transaction(self.engine) as conn:
            modified = mtimes_in_place(conn, self.row.id)
        return SampleReader(
            self.spec,
            self.row.columns,
            root=self._root,
            home=self.home,
            indexes={batch.ordinal: self.home / str(batch.index_path) for batch in self.batches},
            checksums={batch.ordinal: str(batch.index_checksum) for batch in self.batches},
            modified=modified,
            deleted=self.deleted.verified_paths(),
        )

    def renewed(self) -> "DatasetView":
        """The same batches with what was deleted or purged since; this view itself when nothing was."""
        with transaction(self.engine) as conn:
            changed = changed_batches(conn, self.row.id, self.batches)
        if not changed:
            return self
        batches = [changed.get(batch.ordinal, batch) for batch in self.batches]
        view = DatasetView(self.engine, self.home, self.row, self.spec, self._root, batches)
        view._sides = self._sides
        return view

    def up_to(self, ordinal: int) -> "DatasetView":
        """The same dataset as it was when this batch was its newest."""
        if ordinal >= self.last_ordinal:
            return self
        earlier = [batch for batch in self.batches if batch.ordinal <= ordinal]
        view = DatasetView(self.engine, self.home, self.row, self.spec, self._root, earlier)
        view._index, view._sides, view.deleted = self._index, self._sides, self.deleted
        view.__dict__["reader"] = self.reader
        return view

    @property
    def last_ordinal(self) -> int:
        """Ordinal of the newest batch; -1 when there is none."""
        return self.batches[-1].ordinal if self.batches else -1

    @property
    def last_key(self) -> int:
        """The newest key; ``ORIGIN`` when there is none."""
        return self.last_key_of(self.last_ordinal)

    def last_key_of(self, ordinal: int) -> int:
        """The newest key at or before a batch."""
        seen = [batch for batch in self.batches if batch.ordinal <= ordinal]
        return key_of(seen[-1].ordinal, int(seen[-1].n_samples or 0) - 1) if seen else ORIGIN

    @property
    def time_reached(self) -> np.datetime64 | None:
        """The largest sample time of the stream, whatever side it fell on."""
        times = [as_datetime64(batch.time_max) for batch in self.batches if batch.time_max is not None]
        return max(times) if times else None

    def keys_on(self, side: int, window: KeyRange) -> KeyArray:
        """Keys of a window on one side of the split in key order, deleted ones left out, ``uint64[n]``."""
        return np.concatenate([np.empty(0, np.uint64), *(keys for keys, _ in self.scan(window, side))])

    def count(self, window: KeyRange, side: int) -> int:
        """Number of those keys."""
        return sum(len(keys) for keys, _ in self.scan(window, side))

    def scan(self, window: KeyRange, side: int) -> Iterator[tuple[KeyArray, npt.NDArray[np.int64] | None]]:
        """Keys of a window on one side of the split in key order, deleted ones left out, and their class indices; chunk by chunk.

        None stands for the class indices where the dataset has none.
        """
        for batch in self.batches:
            base = key_of(batch.ordinal, 0)
            stop = min(int(batch.n_samples or 0), window.until + 1 - base)
            for begin in range(max(0, window.after + 1 - base), stop, CHUNK):
                keys = np.arange(base + begin, base + min(begin + CHUNK, stop), dtype=np.uint64)
                kept = (self.sides(keys) == side) & ~self.deleted.among(keys)
                labels = self._index(batch.ordinal).labels
                if kept.any():
                    yield keys[kept], None if labels is None else labels[begin : begin + CHUNK][: len(keys)][kept]

    def time_span(self, window: KeyRange) -> tuple[np.datetime64, np.datetime64] | None:
        """Smallest and largest time among the train samples of a window, deleted ones included; None when it has none."""
        spans = []
        for batch in self.batches:
            times = self._index(batch.ordinal).times[self._inside(batch, window, TRAIN)]
            if len(times):
                spans.append((times.min(), times.max()))
        return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None

    def evaluation_positions(self, batch: BatchRow) -> Positions:
        """Positions of a batch that models are judged on: the ``evaluate`` side, or all where the split has none.

        Deleted ones are among them: intervals begin where they did before a deletion.
        """
        return self.positions_on(batch, EVALUATE if self.spec.split.evaluate > 0 else None)

    def positions_on(self, batch: BatchRow, side: int | None) -> Positions:
        """Positions of a batch on one side of the split, or all; deleted ones are among them."""
        return self._inside(batch, KeyRange(ORIGIN, key_of(batch.ordinal, MAX_BATCH_SIZE - 1)), side)

    def times(self, batch: BatchRow) -> npt.NDArray[np.datetime64]:
        """Times of all samples of a batch, ``datetime64[us]``, ascending."""
        return self._index(batch.ordinal).times

    def attribute(self, name: str, batch: BatchRow) -> npt.NDArray[np.object_]:
        """An attribute of all samples of a batch as text, None where a sample has none."""
        return self._attributes(name, batch.ordinal)

    def sides(self, keys: KeyArray) -> npt.NDArray[np.uint8]:
        """On which side of the split keys fall."""
        return side_of(keys, self.spec.split)

    def _inside(self, batch: BatchRow, window: KeyRange, side: int | None) -> Positions:
        first = max(0, window.after + 1 - key_of(batch.ordinal, 0))
        stop = min(int(batch.n_samples or 0), window.until + 1 - key_of(batch.ordinal, 0))
        if side is None or first >= stop:
            return np.arange(first, max(first, stop))
        return first + np.flatnonzero(self._sides(batch.ordinal)[first:stop] == side)


def _open_index(home: Path, batches: Mapping[int, BatchRow], ordinal: int) -> BatchIndex:
    return BatchIndex.open(home / str(batches[ordinal].index_path), batches[ordinal].index_checksum)


def _split(split: Split, batches: Mapping[int, BatchRow], ordinal: int) -> npt.NDArray[np.uint8]:
    return side_of(keys_of(ordinal, np.arange(int(batches[ordinal].n_samples or 0))), split)


def _read_attribute(
    engine: sa.Engine, dataset_id: int, batches: Mapping[int, BatchRow], name: str, ordinal: int
) -> npt.NDArray[np.object_]:
    values = np.full(int(batches[ordinal].n_samples or 0), None, dtype=object)
    base, column = key_of(ordinal, 0), sample.c.attributes[name].as_string()
    with engine.connect() as conn:
        for keys, found in iter_values(conn, dataset_id, base - 1, base + len(values) - 1, column):
            values[positions_of(keys)] = found
    return values
