"""A triggering policy that follows the calendar."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from modyn_dagster.triggering import Decision, Measurement, Stream, TriggeringPolicy


class MonthStart(TriggeringPolicy):
    """Fires where sample time enters another month (UTC), on all samples before that.

    Args:
        every: number of months between two triggers.
    """

    def __init__(self, every: int = 1) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, not {every}")
        self.every = every
        self._month: int | None = None
        self._last = -1
        self._evidence: tuple[int, int, int] | None = None

    @property
    def depends_on_models(self) -> bool:
        """False: keys follow from the samples alone."""
        return False

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """The first sample in or after the month of the next trigger."""
        if self._month is None:
            first = stream.nth_after(stream.origin, 1)
            moment = None if first is None else stream.moment(first)
            if moment is None:
                return None
            self._month = _month_of(moment) + self.every
        self._evidence = stream.first_passing(_begin_of(self._month), cursor)
        return None if self._evidence is None else self._evidence[0]

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        """Fire, unless every sample before the month is trained on already."""
        if self._month is None or self._evidence is None:
            raise ValueError(f"decide({point}) must follow the next_point that named it")
        _, key, moment = self._evidence
        entered = _month_of(moment)
        self._month = entered - (entered - self._month) % self.every + self.every
        return Decision(key > self._last, max(key, self._last), f"{np.datetime64(entered, 'M')} has begun")

    def triggered(self, key: int) -> None:
        """Remember the key, so that no sample is trained on twice."""
        self._last = key

    def state_dict(self) -> dict[str, Any]:
        """Month of the next trigger, counted from 1970, and the key of the last one."""
        return {"month": self._month, "last": self._last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore both."""
        self._month, self._last = state.get("month"), int(state.get("last", -1))


def _month_of(moment: int) -> int:
    """Month of a time in microseconds since 1970."""
    return int(np.datetime64(moment, "us").astype("datetime64[M]").astype(int))


def _begin_of(month: int) -> int:
    """Microseconds since 1970 at which a month begins."""
    return int(np.datetime64(month, "M").astype("datetime64[us]").astype(int))
