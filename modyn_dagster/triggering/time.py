"""Fire at ticks of sample time."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import numpy as np

from modyn_dagster.spec.base import as_time, timedelta_of
from modyn_dagster.triggering.measurement import Measurement
from modyn_dagster.triggering.policy import Decision, State, TriggeringPolicy
from modyn_dagster.triggering.stream import Stream


class TimePolicy(TriggeringPolicy):
    """Fires when sample time passes ``start + n * every``, n >= 1; without ``start`` the first sample's time is it.

    The evidence is the first sample at or after a tick; the training set ends at its predecessor, the last sample before the
    tick, which may lie in an earlier batch. Several ticks between two samples are one trigger, and a tick before the first
    sample is none (Modyn, SIGMOD 2025, §5.1).
    """

    def __init__(self, every: str, start: datetime | date | None = None) -> None:
        self.every = every
        self.start = start
        self._step = timedelta_of(every)
        self._fixed_origin = None if start is None else as_time(start)
        self._origin = self._fixed_origin
        self._tick: np.datetime64 | None = None
        self._evidence: tuple[int, int | None, np.datetime64] | None = None

    def __repr__(self) -> str:
        return f"TimePolicy(every={self.every!r}, start={self.start!r})"

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """The first sample at or after the next tick."""
        if self._origin is None:
            first = stream.nth_after(cursor, 1)
            if first is None:
                return None
            self._origin = stream.time(first)
        tick = self._tick if self._tick is not None else self._origin + self._step
        point = stream.first_at_or_after(tick, cursor)
        if point is not None:
            self._evidence = (point, stream.before(point), stream.time(point))
        return point

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        """Fires unless no sample lies before the tick."""
        if self._evidence is None or self._evidence[0] != point or self._origin is None:
            raise ValueError(f"decide({point}) must follow the next_point that named it")
        _, key, time = self._evidence
        ticks = (time - self._origin) // self._step
        passed = self._origin + ticks * self._step
        self._tick = passed + self._step
        if key is None:
            return Decision(False, point, f"no sample before the tick at {_shown(passed)}")
        return Decision(True, key, f"tick at {_shown(passed)}")

    def state_dict(self) -> State:
        """Origin and next tick, in microseconds since 1970."""
        return {"origin": _microseconds(self._origin), "tick": _microseconds(self._tick)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up origin and next tick."""
        self._origin = _time(state.get("origin")) if state.get("origin") is not None else self._fixed_origin
        self._tick = _time(state.get("tick"))
        self._evidence = None


def _microseconds(time: np.datetime64 | None) -> int | None:
    return None if time is None else int(time.astype("datetime64[us]").astype(np.int64))


def _time(microseconds: int | None) -> np.datetime64 | None:
    return None if microseconds is None else np.datetime64(microseconds, "us")


def _shown(time: np.datetime64) -> str:
    return str(time.astype("datetime64[s]")).replace("T00:00:00", "").replace("T", " ")
