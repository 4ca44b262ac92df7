"""Labels known at a position of a stream whose labels come with their samples, under a simulated delay.

A label is known as soon as the stream is older than its sample by the delay. The time of the stream at a position is the largest
sample time among the batches up to it, deleted samples included: so it never goes back, and is the same live and in a replay.
Batches arrive in the order of their ordinals, so the ordinal of the newest batch is the position.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self

import numpy as np

from fastpath.format.labels.known_labels import Chosen
from fastpath.format.labels.label_file import LabelArray, LabelKind
from modyn_dagster.data.delays.draws import NEVER
from modyn_dagster.data.delays.label_times import LabelTimes, Moments
from modyn_dagster.data.deletion.holes import Holes
from modyn_dagster.data.known_batches import BatchColumns
from modyn_dagster.keys import keys_of
from modyn_dagster.spec.learning.label_delay import ConstantDelay, delay_seconds

#: Batches of which some labels are known and others are not, whose times stay in memory.
_MOST_BATCHES: Final = 64
_LONG_AGO: Final = np.iinfo(np.int64).min
_ALL: Final = slice(None)


class DelayedBatches:
    """Labels of the batches of a dataset, by the time of the stream. Thread-safe; it can be sent to another process.

    Args:
        labels: of the batches, with the times at which they are known.
        columns: facts of the batches, without the holes.
        holes: samples whose class does not count; None without any.
    """

    def __init__(self, labels: LabelTimes, columns: BatchColumns, holes: Holes | None = None) -> None:
        self._labels, self._columns, self._holes = labels, columns, holes
        # Of a method of another object: a cached method of this one would keep it and its open files alive.
        self._known_at: Callable[[int], Moments] = lru_cache(maxsize=_MOST_BATCHES)(labels.known_at)
        self._spans: dict[int, tuple[int, int]] = {}
        self._classes: dict[int, Moments] = {}

    def __reduce__(self) -> tuple[type["DelayedBatches"], tuple[Any, ...]]:
        """Send no cache along."""
        return type(self), (self._labels, self._columns, self._holes)

    @property
    def kind(self) -> LabelKind:
        """``labels`` (class indices) or ``targets``."""
        return self._labels.kind

    def time_at(self, position: int) -> np.datetime64 | None:
        """Largest sample time among the batches up to a position; None where they have no sample."""
        times = self._columns.last[: self._n_arrived(position)]
        times = times[~np.isnat(times)]
        return times.max() if len(times) else None

    def known(self, ordinal: int, n: int, now: int, chosen: Chosen = _ALL) -> LabelArray:
        """Labels of the ``n`` samples of a batch, or of some, that are known at a time; -1 or NaN where one is not."""
        first, last = self._span(ordinal)
        missing = -1 if self.kind == "labels" else np.nan
        if now < first:
            return np.broadcast_to(missing, n)[chosen].copy()
        values = self._labels.values(ordinal)[chosen]
        return values if last <= now else np.where(self._known_at(ordinal)[chosen] <= now, values, missing)

    def n_known(self, ordinal: int, now: int) -> int:
        """Number of samples of a batch whose label is known at a time."""
        first, last = self._span(ordinal)
        if not first <= now < last:
            return 0 if now < first else int(self._labels.batches[ordinal].n_samples or 0)
        return int(np.count_nonzero(self._known_at(ordinal) <= now))

    def largest_class(self, position: int, now: int) -> int:
        """Largest class of any label that is known at a position, where the stream has reached a time; -1 without labels."""
        ordinals = self._columns.ordinals[: self._n_arrived(position)].tolist()
        return max((int(np.flatnonzero(self._first_of_class(each) <= now).max(initial=-1)) for each in ordinals), default=-1)

    def _n_arrived(self, position: int) -> int:
        return int(np.searchsorted(self._columns.ordinals, position, side="right"))

    def _span(self, ordinal: int) -> tuple[int, int]:
        """First and last time at which a label of a batch is known; ``NEVER`` as last where one never is."""
        if ordinal not in self._spans:
            self._spans[ordinal] = self._constant_span(ordinal) or self._read_span(ordinal)
        return self._spans[ordinal]

    def _constant_span(self, ordinal: int) -> tuple[int, int] | None:
        """Span under a constant delay, for which no index is opened."""
        delay, row = self._labels.delay, int(np.searchsorted(self._columns.ordinals, ordinal))
        if not isinstance(delay, ConstantDelay):
            return None
        first, last = (int(times[row].astype(np.int64)) for times in (self._columns.first, self._columns.last))
        wait = delay_seconds(delay.after) * 1_000_000
        return min(first + wait, NEVER), min(last + wait, NEVER)

    def _read_span(self, ordinal: int) -> tuple[int, int]:
        known_at = self._known_at(ordinal)
        return int(known_at.min(initial=NEVER)), int(known_at.max(initial=_LONG_AGO))

    def _first_of_class(self, ordinal: int) -> Moments:
        """Time at which the first label of each class is known in a batch, by class."""
        if ordinal not in self._classes:
            values = self._labels.values(ordinal).astype(np.int64)
            labelled = values >= 0
            if self._holes is not None:
                labelled &= ~self._holes.among(keys_of(ordinal, np.arange(len(values))))
            first = np.full(int(values.max(initial=-1)) + 1, NEVER)
            np.minimum.at(first, values[labelled], self._known_at(ordinal)[labelled])
            self._classes[ordinal] = first
        return self._classes[ordinal]


@dataclass(frozen=True, slots=True)
class DelayedLabels:
    """Labels known at one position.

    Attributes:
        batches: labels by the time of the stream.
        position: ordinal of the newest batch that has arrived.
        now: time of the stream, in microseconds since 1970; None before the first sample.
    """

    batches: DelayedBatches
    position: int
    now: int | None

    @classmethod
    def at(cls, batches: DelayedBatches, position: int) -> Self:
        """Labels known at a position."""
        time = batches.time_at(position)
        return cls(batches, position, None if time is None else min(int(time.astype(np.int64)), NEVER - 1))

    @property
    def kind(self) -> LabelKind:
        """``labels`` (class indices) or ``targets``."""
        return self.batches.kind

    def of(self, ordinal: int, n: int) -> LabelArray:
        """Labels of the ``n`` samples of a batch, ``int64[n]`` (-1: not known) or ``float64[n]`` (NaN: not known)."""
        return self.take(ordinal, n, _ALL)

    def take(self, ordinal: int, n: int, chosen: Chosen) -> LabelArray:
        """Labels of some of the ``n`` samples of a batch: ``int64[k]`` or ``float64[k]``."""
        now = self._now(ordinal)
        return self.batches.known(ordinal, n, _LONG_AGO if now is None else now, chosen)

    def version(self, ordinal: int) -> int:
        """Number that grows with the position whenever labels of a batch can have changed."""
        now = self._now(ordinal)
        return 0 if now is None else self.batches.n_known(ordinal, now)

    @property
    def largest_class(self) -> int:
        """Largest class of any known label; -1 without labels."""
        return -1 if self.now is None else self.batches.largest_class(self.position, self.now)

    def _now(self, ordinal: int) -> int | None:
        """Time of the stream; None where a batch has not arrived."""
        return self.now if ordinal <= self.position else None
