"""Time policy: fire at ticks of sample time."""

from collections.abc import Mapping
from datetime import date, datetime
from functools import cache, lru_cache
from typing import Any, Final

from modyn_dagster.keys import ORIGIN
from modyn_dagster.spec.base import as_time, seconds_of
from modyn_dagster.triggering.measurement import Measurement
from modyn_dagster.triggering.policy import Decision, State, TriggeringPolicy
from modyn_dagster.triggering.stream.loaded_batch import SECOND, microseconds
from modyn_dagster.triggering.stream.training_stream import Stream

_EPOCH: Final = date(1970, 1, 1).toordinal()


class TimePolicy(TriggeringPolicy):
    """Fires when sample time passes ``start + n * every``, n >= 1 (Modyn, SIGMOD 2025, §5.1).

    The evidence is the first sample at or after a tick. The training set ends at the sample before it, the last one before the
    tick, which may lie in an earlier batch. Several ticks between two samples make one trigger. A tick before the first sample
    makes none, nor does a tick without a new sample since a manual trigger.

    Args:
        every: a duration.
        start: time that ticks are counted from; the time of the first sample by default.

    >>> from modyn_dagster.triggering import simulate
    >>> [(decision.index, decision.reason) for decision in simulate(TimePolicy("1d"), [0, 50_000, 100_000, 200_000])]
    [(1, 'tick at 1970-01-02'), (2, 'tick at 1970-01-03')]
    """

    def __init__(self, every: str, start: datetime | date | None = None) -> None:
        self.every = every
        self.start = start
        self._step = seconds_of(every) * SECOND
        self._fixed_origin = None if start is None else microseconds(as_time(start))
        self._origin = self._fixed_origin
        self._tick: int | None = None
        self._last = ORIGIN
        self._evidence: tuple[int, int, int] | None = None

    def __repr__(self) -> str:
        return f"TimePolicy(every={self.every!r}, start={self.start!r})"

    @property
    def depends_on_models(self) -> bool:
        """False: keys follow from the samples alone."""
        return False

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """The first sample at or after the next tick."""
        if self._evidence is not None and self._evidence[0] > cursor:
            return self._evidence[0]
        if self._tick is None and not self._begin(stream):
            return None
        assert self._tick is not None, "set by _begin"  # noqa: S101 - for the type checker
        self._evidence = evidence = stream.first_passing(self._tick, cursor)
        return None if evidence is None else evidence[0]

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        """Fire, unless every sample before the tick is trained on already."""
        if self._evidence is None or self._evidence[0] != point or self._origin is None:
            raise ValueError(f"decide({point}) must follow the next_point that named it")
        _, key, moment = self._evidence
        passed = moment - (moment - self._origin) % self._step
        self._tick, self._evidence = passed + self._step, None
        if key <= self._last:
            return Decision(False, point, f"nothing new before the tick at {_time_text(passed)}")
        return Decision(True, key, f"tick at {_time_text(passed)}")

    def triggered(self, key: int) -> None:
        """Remember the key, so that no sample is trained on twice."""
        self._last = key

    def state_dict(self) -> State:
        """Origin and next tick, in microseconds since 1970, and the key of the last trigger."""
        return {"origin": self._origin, "tick": self._tick, "last": self._last}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore all three."""
        origin, tick = state.get("origin"), state.get("tick")
        self._origin = self._fixed_origin if origin is None else int(origin)
        self._tick = None if tick is None else int(tick)
        self._last = int(state.get("last", ORIGIN))
        self._evidence = None

    def _begin(self, stream: Stream) -> bool:
        """Set the first tick after the first sample; False while there is no sample."""
        first = stream.nth_after(stream.origin, 1)
        moment = None if first is None else stream.moment(first)
        if moment is None:
            return False
        if self._origin is None:
            self._origin = moment
        self._tick = self._origin + max(1, (moment - self._origin) // self._step + 1) * self._step
        return True


def _time_text(moment: int) -> str:
    """A time to the second; at midnight the day alone."""
    days, seconds = divmod(moment // SECOND, 86_400)
    if not seconds:
        return _day(days)
    return f"{_day(days)} {_clock(seconds)}"


# At most one entry for each second of a day.
@cache
def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


@lru_cache(maxsize=16)
def _day(days: int) -> str:
    return date.fromordinal(_EPOCH + days).isoformat()
