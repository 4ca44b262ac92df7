"""Sample time on the x-axes of MLflow: timestamps are dates, steps are years or parts of years.

MLflow refuses timestamps before 1970. The Gregorian calendar repeats every 400 years, with its days of the week and leap years:
a stream that begins earlier is shown 400 years later (tag ``modyn/time_shift``). Steps may be of any time and are never shifted.
"""

from calendar import isleap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.reporting.scores import Interval, spec_of
from modyn_dagster.spec.intervals import IntervalBlock, PeriodicIntervals, SlidingIntervals, TumblingIntervals, length_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_YEARS: Final = 400
#: Milliseconds in 400 years of the Gregorian calendar.
_CYCLE: Final = 146_097 * 86_400_000
_LONGEST_YEAR: Final = 366 * 86_400
#: Steps per year: the first number with which intervals that begin one after the other have steps of their own.
_SCALES: Final = (1, 1_000, 1_000_000)
#: Steps per year of series without regular intervals.
FINE: Final = 1_000


@dataclass(frozen=True, slots=True)
class StreamTime:
    """Steps and timestamps of one series or run.

    Attributes:
        cycles: number of times that 400 years are added to timestamps.
        scale: steps per year.
    """

    cycles: int = 0
    scale: int = FINE

    @classmethod
    def beginning(cls, first: datetime | None, block: IntervalBlock | None = None) -> Self:
        """Sample time from a first moment on; steps are as fine as regular intervals need."""
        cycles = 0 if first is None else max(0, -(milliseconds(first) // _CYCLE))
        if isinstance(block, TumblingIntervals | SlidingIntervals | PeriodicIntervals):
            return cls(cycles, _scale(length_of(block.every)))
        return cls(cycles)

    @classmethod
    def of_run(cls, run: RunRow, intervals: Sequence[Interval]) -> Self:
        """Sample time of the evaluation of a run. ``intervals`` are all of the run, in order of time."""
        return cls.beginning(intervals[0][0] if intervals else None, spec_of(run).evaluation.intervals)

    def step(self, moment: datetime) -> int:
        """The year of a moment times ``scale``, rounded.

        >>> StreamTime(scale=1).step(datetime(1909, 12, 30, tzinfo=UTC)), StreamTime().step(datetime(2024, 7, 2, tzinfo=UTC))
        (1910, 2024500)
        """
        utc = moment.astimezone(UTC)
        begin = datetime(utc.year, 1, 1, tzinfo=UTC)
        year = timedelta(days=366 if isleap(utc.year) else 365)
        return utc.year * self.scale + (2 * self.scale * (utc - begin) + year) // (2 * year)

    def timestamp(self, moment: datetime) -> int:
        """Milliseconds from 1970 to a moment, or to the same day 400 years later."""
        return milliseconds(moment) + self.cycles * _CYCLE


def interval_tags(intervals: Sequence[Interval]) -> dict[str, str]:
    """Number and extent of the intervals, and the years added to timestamps, if there are any."""
    if not intervals:
        return {}
    cycles = StreamTime.beginning(intervals[0][0]).cycles
    extent = f"{len(intervals)} from {utc_text(intervals[0][0])} to {utc_text(intervals[-1][1])}"
    return {"modyn/intervals": extent} | ({"modyn/time_shift": f"{cycles * _YEARS} years later"} if cycles else {})


def interval_table(intervals: Sequence[Interval], time: StreamTime) -> list[dict[str, Any]]:
    """Interval of each step of ``evaluation/…``."""
    return [{"step": time.step(start), "start": utc_text(start), "end": utc_text(end)} for start, end in intervals]


def milliseconds(moment: datetime) -> int:
    """Milliseconds since 1970, rounded down; negative before."""
    return (moment - _EPOCH) // _MILLISECOND


def utc_text(moment: datetime) -> str:
    """Moment in UTC as ISO 8601."""
    return moment.astimezone(UTC).isoformat()


def _scale(every: int) -> int:
    return next((scale for scale in _SCALES if every * scale >= _LONGEST_YEAR), _SCALES[-1])
