"""Fire at ticks of sample time."""

from collections.abc import Mapping
from datetime import date, datetime
from functools import cache, lru_cache
from typing import Any, Final

from modyn_dagster.keys import ORIGIN
from modyn_dagster.spec.base import as_time, seconds_of
from modyn_dagster.triggering.measurement import Measurement
from modyn_dagster.triggering.policy import Decision, State, TriggeringPolicy
from modyn_dagster.triggering.stream.loaded_batch import microseconds
from modyn_dagster.triggering.stream.training_stream import Stream

_SECOND: Final = 1_000_000
_EPOCH: Final = date(1970, 1, 1).toordinal()


class TimePolicy(TriggeringPolicy):
    """Fires when sample time passes ``start + n * every``, n >= 1; without ``start`` the first sample's time is it.

    The evidence is the first sample at or after a tick; the training set ends at its predecessor, the last sample before the
    tick, which may lie in an earlier batch. Several ticks between two samples are one trigger, and a tick before the first
    sample is none, nor is one with nothing new since a trigger made by hand (Modyn, SIGMOD 2025, §5.1).
    """

    def __init__(self, every: str, start: datetime | date | None = None) -> None:
        self.every = every
        self.start = start
        self._step = seconds_of(every) * _SECOND
        self._fixed_origin = None if start is None else microseconds(as_time(start))
        self._origin = self._fixed_origin
        self._tick: int | None = None
        self._last = ORIGIN
        self._evidence: tuple[int, int, int] | None = None

    def __repr__(self) -> str:
        return f"TimePolicy(every={self.every!r}, start={self.start!r})"

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """The first sample at or after the next tick."""
        if self._evidence is not None and self._evidence[0] > cursor:
            return self._evidence[0]
        if self._tick is None and not self._begin(stream):
            return None
        assert self._tick is not None, "set when it began"  # noqa: S101 - for the type checker
        self._evidence = evidence = stream.passing(self._tick, cursor)
        return None if evidence is None else evidence[0]

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        """Fires, for a tick has passed, unless what came before it is trained on already."""
        if self._evidence is None or self._evidence[0] != point or self._origin is None:
            raise ValueError(f"decide({point}) must follow the next_point that named it")
        _, key, moment = self._evidence
        passed = moment - (moment - self._origin) % self._step
        self._tick, self._evidence = passed + self._step, None
        if key <= self._last:
            return Decision(False, point, f"nothing new before the tick at {_shown(passed)}")
        return Decision(True, key, f"tick at {_shown(passed)}")

    def triggered(self, key: int) -> None:
        """Remembered: nothing is trained on twice."""
        self._last = key

    def state_dict(self) -> State:
        """Origin and next tick, in microseconds since 1970, and the key of the last trigger."""
        return {"origin": self._origin, "tick": self._tick, "last": self._last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up all three."""
        origin, tick = state.get("origin"), state.get("tick")
        self._origin = self._fixed_origin if origin is None else int(origin)
        self._tick = None if tick is None else int(tick)
        self._last = int(state.get("last", ORIGIN))
        self._evidence = None

    def _begin(self, stream: Stream) -> bool:
        """Find the first tick after the first sample, for there is nothing to train on before; False while there is none."""
        first = stream.nth_after(stream.origin, 1)
        moment = None if first is None else stream.moment(first)
        if moment is None:
            return False
        if self._origin is None:
            self._origin = moment
        self._tick = self._origin + max(1, (moment - self._origin) // self._step + 1) * self._step
        return True


def _shown(moment: int) -> str:
    """A moment to the second, and to the day at midnight."""
    days, seconds = divmod(moment // _SECOND, 86_400)
    if not seconds:
        return _day(days)
    return f"{_day(days)} {_clock(seconds)}"


# As many as a day has seconds.
@cache
def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


@lru_cache(maxsize=16)
def _day(days: int) -> str:
    return date.fromordinal(_EPOCH + days).isoformat()
