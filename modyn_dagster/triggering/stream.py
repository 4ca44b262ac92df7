"""The training stream as triggering policies see it: train samples in key order, time as a running maximum."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from modyn_dagster.errors import UnknownKey
from modyn_dagster.keys import ORIGIN, key_of, ordinal_of, position_of

Times = npt.NDArray[np.datetime64]
Positions = npt.NDArray[np.int64]

_BEFORE_ALL = np.datetime64(np.iinfo(np.int64).min + 1, "us")


@dataclass(frozen=True)
class StreamBatch:
    """The train samples of one batch.

    Attributes:
        ordinal: of the batch.
        n: number of train samples.
        time_max: their largest time, ``datetime64[us]``.
        load: their positions (ascending) and times, each of length ``n``; called only when a place inside the batch matters.
    """

    ordinal: int
    n: int
    time_max: np.datetime64
    load: Callable[[], tuple[Positions, Times]]


class Stream:
    """A read-only view of the train samples after ``origin``.

    Samples deleted later still count, so a deletion changes no decision. Time is sample time as a running maximum in key
    order over the whole stream: a late sample never causes a tick.
    """

    def __init__(self, batches: Sequence[StreamBatch], origin: int = ORIGIN) -> None:
        self._batches = [batch for batch in batches if batch.n]
        self._ordinals = np.array([batch.ordinal for batch in self._batches], dtype=np.int64)
        self._ends = np.cumsum([0, *(batch.n for batch in self._batches)])
        maxima = np.array([batch.time_max for batch in self._batches], dtype="datetime64[us]")
        self._maxima = np.maximum.accumulate(maxima) if len(maxima) else maxima
        self._inside = lru_cache(maxsize=8)(self._load)
        self.origin = origin
        self._start = self._rank(origin)

    def __len__(self) -> int:
        return int(self._ends[-1]) - self._start

    def count(self, after: int, until: int) -> int:
        """Number of samples with ``after < key <= until``."""
        return max(0, self._rank(until) - max(self._rank(after), self._start))

    def nth_after(self, after: int, n: int) -> int | None:
        """Key of the n-th sample (from 1) after a key; None when the stream is shorter."""
        return self._key_or_none(max(self._rank(after), self._start) + n)

    def first_at_or_after(self, time: np.datetime64, after: int) -> int | None:
        """Key of the first sample after a key at which the running time has reached ``time``."""
        reached = int(np.searchsorted(self._maxima, time, side="left"))
        if reached == len(self._batches):
            return None
        inside = int(np.searchsorted(self._inside(reached)[1], time, side="left"))
        return self._key_or_none(max(int(self._ends[reached]) + inside, self._rank(after), self._start) + 1)

    def before(self, key: int) -> int | None:
        """Key of the sample just before a key; None when there is none after the origin."""
        rank = self._rank(key - 1)
        return self._key(rank) if rank > self._start else None

    def time(self, key: int) -> np.datetime64:
        """The running time at a sample, ``datetime64[us]``."""
        index = int(np.searchsorted(self._ordinals, ordinal_of(key)))
        if index < len(self._batches) and self._ordinals[index] == ordinal_of(key):
            positions, running = self._inside(index)
            inside = int(np.searchsorted(positions, position_of(key)))
            if inside < len(positions) and positions[inside] == position_of(key):
                time: np.datetime64 = running[inside]
                return time
        raise UnknownKey(key, "training stream")

    def _rank(self, key: int) -> int:
        """How many samples of the whole stream lie at or before a key."""
        if key < 0:
            return 0
        index = int(np.searchsorted(self._ordinals, ordinal_of(key)))
        if index == len(self._batches) or self._ordinals[index] != ordinal_of(key):
            return int(self._ends[index])
        inside = int(np.searchsorted(self._inside(index)[0], position_of(key), side="right"))
        return int(self._ends[index]) + inside

    def _key_or_none(self, rank: int) -> int | None:
        return self._key(rank) if rank <= self._ends[-1] else None

    def _key(self, rank: int) -> int:
        index = int(np.searchsorted(self._ends, rank, side="left")) - 1
        positions, _ = self._inside(index)
        return key_of(int(self._ordinals[index]), int(positions[rank - 1 - int(self._ends[index])]))

    def _load(self, index: int) -> tuple[Positions, Times]:
        positions, times = self._batches[index].load()
        before = self._maxima[index - 1] if index else _BEFORE_ALL
        return positions, np.maximum(np.maximum.accumulate(times), before)
