"""Train samples of one batch, ready to be searched one key or one time at a time."""

from bisect import bisect_left, bisect_right
from typing import Final

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.datetime64]
Positions = npt.NDArray[np.int64]

#: Microseconds in a second.
SECOND: Final = 1_000_000


class LoadedBatch:
    """Positions and running times of the train samples of a batch.

    Attributes:
        n: number of samples.
        times: running time at each sample, in microseconds.
        dense: the samples lie at positions 0, 1, 2, … without gaps.

    Single values are looked up at every decision point. Memory views give them as Python integers without a copy, several times
    faster than arrays do.
    """

    __slots__ = ("_positions", "_running", "dense", "n", "times")

    def __init__(self, positions: Positions, times: Times, reached: int | None) -> None:
        """``reached`` is the largest time before this batch in microseconds, or None."""
        running = np.maximum.accumulate(times.astype("datetime64[us]").view(np.int64))
        self._running = running if reached is None else np.maximum(running, reached)
        self._positions = np.ascontiguousarray(positions, dtype=np.int64).data
        self.n = len(self._positions)
        self.times = self._running.data
        self.dense = self._positions[self.n - 1] == self.n - 1

    def count_to(self, position: int) -> int:
        """Number of samples at or before a position."""
        return min(position + 1, self.n) if self.dense else bisect_right(self._positions, position)

    def position(self, index: int) -> int:
        """Position of the ``index``-th sample in the batch."""
        return index if self.dense else self._positions[index]

    def time(self, index: int) -> int:
        """The running time at the ``index``-th sample, in microseconds."""
        return self.times[index]

    def count_before(self, time: int) -> int:
        """Number of samples whose running time lies before ``time``."""
        return bisect_left(self.times, time)

    def count_by(self, time: int) -> int:
        """Number of samples whose running time lies at or before ``time``."""
        return bisect_right(self.times, time)

    def waiting_time(self, start: int, stop: int, now: int) -> int:
        """Waiting time of the samples ``start`` to ``stop`` at time ``now``, added up, in microseconds.

        Seconds and the rest are added up apart, because microseconds alone would overflow at 10 million sample-days.
        """
        waits = now - self._running[start:stop]
        return int((waits // SECOND).sum()) * SECOND + int((waits % SECOND).sum())


def microseconds(time: np.datetime64) -> int:
    """Sample time in whole microseconds since 1970."""
    return int(time.astype("datetime64[us]").astype(np.int64))
