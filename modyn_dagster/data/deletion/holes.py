"""Holes of a run: samples that it treats as if they had never arrived.

A hole is on no side of the split, and in none of the facts of its batch: it counts in no count, time, window, statistic or
interval, and no sampler sees it. Keys and positions of all other samples are what they are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from fastpath.format.index import BatchIndex
from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.database.mapping import as_timestamp
from modyn_dagster.catalog.labels.label_files import LabelFileRow
from modyn_dagster.catalog.removal.hole_sets import HoleSetRow
from modyn_dagster.catalog.removal.packed_keys import unpack_keys
from modyn_dagster.data.known_batches import BatchColumns, BatchList
from modyn_dagster.data.label_files import open_label_file
from modyn_dagster.data.split import TRAIN, side_of
from modyn_dagster.keys import KeyArray, keys_of, ordinals_of, positions_of
from modyn_dagster.spec.dataset import Split

Positions = npt.NDArray[np.int64]

#: Side of the split of a hole, which nothing is selected from and nothing is evaluated on.
HOLE: Final = 255


@dataclass(frozen=True, slots=True)
class RestOfBatch:
    """Facts of a batch without its holes; the names are those of ``BatchRow``.

    Attributes:
        label_counts: without labels that were purged before the holes were made: the class of such a hole stays counted.
    """

    n_train: int
    time_min: datetime | None
    time_max: datetime | None
    train_time_max: datetime | None
    label_counts: Mapping[str, int]

    @classmethod
    def of(
        cls, batch: BatchRow, index: BatchIndex, positions: Positions, more: Positions, split: Split, class_names: Sequence[str]
    ) -> Self:
        """Facts of an ingested batch without some positions; ``more`` are those whose labels its row still counts."""
        left = np.ones(len(index.times), dtype=bool)
        left[positions] = False
        is_train = left & (side_of(keys_of(batch.ordinal, np.arange(len(left))), split) == TRAIN)
        times, train_times = index.times[left], index.times[is_train]
        counts = dict(batch.label_counts or {})
        if index.labels is not None:
            classes, numbers = np.unique(index.labels[more], return_counts=True)
            for number, n in zip(classes.tolist(), numbers.tolist(), strict=True):
                name = class_names[number] if 0 <= number < len(class_names) else str(number)
                if name in counts:
                    counts[name] -= n
        return cls(
            int(is_train.sum()),
            as_timestamp(times.min()) if len(times) else None,
            as_timestamp(times.max()) if len(times) else None,
            as_timestamp(train_times.max()) if len(train_times) else None,
            {name: n for name, n in counts.items() if n > 0},
        )

    def to_json(self) -> dict[str, Any]:
        """JSON values; times in ISO 8601."""
        times = {name: getattr(self, name) for name in ("time_min", "time_max", "train_time_max")}
        texts = {name: None if time is None else time.isoformat() for name, time in times.items()}
        return {"n_train": self.n_train, **texts, "label_counts": dict(self.label_counts)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` gives."""
        times = {name: values[name] for name in ("time_min", "time_max", "train_time_max")}
        moments = {name: None if text is None else datetime.fromisoformat(text) for name, text in times.items()}
        return cls(n_train=values["n_train"], label_counts=values["label_counts"], **moments)


class Holes:
    """Holes of a run in the batches of its dataset.

    Args:
        keys: of the samples, ``uint64[n]``, ascending.
        rests: facts of the batches with holes, by ordinal.
        late_classes: largest class that files of labels had without the labels of holes, by id, where it is another one.
    """

    def __init__(self, keys: KeyArray, rests: Mapping[int, RestOfBatch], late_classes: Mapping[int, int]) -> None:
        self._keys = keys
        self._rests = rests
        self._late_classes = late_classes
        self._counted: tuple[Sequence[BatchRow], BatchList] | None = None

    @classmethod
    def of(cls, row: HoleSetRow) -> Self:
        """Holes of a stored set."""
        rests = {int(ordinal): RestOfBatch.from_json(values) for ordinal, values in row.batches.items()}
        return cls(unpack_keys(row.keys), rests, {int(file): largest for file, largest in row.late_classes.items()})

    @property
    def keys(self) -> KeyArray:
        """Keys of the holes, ``uint64[n]``, ascending."""
        return self._keys

    @property
    def ordinals(self) -> list[int]:
        """Ordinals of the batches with holes, ascending."""
        return sorted(self._rests)

    def among(self, keys: KeyArray) -> npt.NDArray[np.bool_]:
        """Test keys (``uint64[n]``, any order) for holes, ``bool[n]``."""
        place = np.searchsorted(self._keys, keys)
        inside = place < len(self._keys)
        inside[inside] = self._keys[place[inside]] == keys[inside]
        return inside

    def largest_class(self, file: LabelFileRow) -> int:
        """Largest class that a label file had without the labels of holes; -1 for targets and without a label."""
        return self._late_classes.get(file.id, file.largest)

    def counted(self, batches: BatchList) -> BatchList:
        """Rows and columns of batches without their holes; those of the same list are remembered."""
        # Read once: threads may ask for different lists.
        counted = self._counted
        if counted is None or counted[0] is not batches.rows:
            rows = tuple(self.without(row) for row in batches.rows)
            self._counted = counted = batches.rows, BatchList(rows, BatchColumns.of(rows))
        return counted[1]

    def without(self, row: BatchRow) -> BatchRow:
        """A row with the facts of its batch without holes."""
        rest = self._rests.get(row.ordinal)
        if rest is None:
            return row
        return replace(
            row,
            n_train=rest.n_train,
            time_min=rest.time_min,
            time_max=rest.time_max,
            train_time_max=rest.train_time_max,
            label_counts=rest.label_counts,
        )


def rests_of(
    batches: Sequence[BatchRow],
    index: Callable[[BatchRow], BatchIndex],
    keys: KeyArray,
    split: Split,
    class_names: Sequence[str],
    earlier: Holes | None = None,
) -> dict[int, RestOfBatch]:
    """Facts of the batches that hold some of these keys, without them.

    Args:
        batches: ingested ones, all that the keys are in among them.
        index: opens the index of a batch.
        keys: ``uint64[n]``, ascending.
        split: of the dataset.
        class_names: of the dataset; none where classes are numbers.
        earlier: holes among the keys whose labels may be purged by now: their counts stand in its facts.
    """
    ordinals = ordinals_of(keys)
    fresh = np.ones(len(keys), dtype=bool) if earlier is None else ~earlier.among(keys)
    touched, rests = set(np.unique(ordinals).tolist()), dict[int, RestOfBatch]()
    for batch in batches:
        if batch.ordinal in touched:
            row, own = batch if earlier is None else earlier.without(batch), ordinals == batch.ordinal
            positions, more = positions_of(keys[own]), positions_of(keys[own & fresh])
            rests[batch.ordinal] = RestOfBatch.of(row, index(batch), positions, more, split, class_names)
    return rests


def late_classes(home: Path, files: Sequence[LabelFileRow], keys: KeyArray, earlier: Holes | None = None) -> dict[int, int]:
    """Largest class of label files without the labels of some samples, by id, where it is another one than with them.

    Args:
        home: folder of the files of state.
        files: of the dataset; only those are read that hold labels of the batches of these samples.
        keys: ``uint64[n]``, ascending.
        earlier: holes among the keys whose labels may be purged by now. Any other purged label stays counted.
    """
    ordinals, classes = set(np.unique(ordinals_of(keys)).tolist()), dict[int, int]()
    for file in files:
        largest = file.largest if earlier is None else earlier.largest_class(file)
        if largest >= 0 and ordinals & {part[0] for part in file.parts}:
            rows = open_label_file(home, file).rows()
            holes = np.isin(rows.keys, keys)
            if int(rows.values[holes].max(initial=-1)) >= largest:
                largest = int(rows.values[~holes].max(initial=-1))
        if largest != file.largest:
            classes[file.id] = largest
    return classes
