"""Quiet for a while after each trigger."""

from collections.abc import Mapping
from typing import Any

from modyn_dagster.spec.base import seconds_of
from modyn_dagster.triggering.policy import State, TriggeringPolicy
from modyn_dagster.triggering.stream.training_stream import Stream
from modyn_dagster.triggering.wrappers.wrapper import Refusal, Wrapper


class CooldownPolicy(Wrapper):
    """Another policy whose next trigger lies at least so many samples, or so much sample time, after the last one.

    Measured between the keys of the two triggers; triggers by hand count, the first trigger is never refused. What the
    other policy measures meanwhile goes on.
    """

    def __init__(self, policy: TriggeringPolicy, *, samples: int | None = None, duration: str | None = None) -> None:
        super().__init__(policy)
        self.samples = samples
        self.duration = duration
        self._last: int | None = None

    def __repr__(self) -> str:
        return f"CooldownPolicy({self.policy!r}, samples={self.samples}, duration={self.duration!r})"

    def refusal(self, key: int, stream: Stream) -> Refusal | None:
        """Refused while the distance to the last trigger is too short."""
        if self._last is None:
            return None
        if self.samples is not None:
            return _refused_below(stream.count(self._last, key), self.samples, "samples")
        then, now = stream.moment(self._last), stream.moment(key)
        if self.duration is None or then is None or now is None:
            return None
        return _refused_below((now - then) / 1_000_000, seconds_of(self.duration), "seconds")

    def triggered(self, key: int) -> None:
        """The quiet time begins again."""
        self._last = key
        super().triggered(key)

    def own_state(self) -> State:
        """Key of the last trigger."""
        return {"last": self._last}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Take up the key of the last trigger."""
        self._last = state.get("last")


def _refused_below(passed: float, least: int, unit: str) -> Refusal | None:
    if passed >= least:
        return None
    return Refusal("cooldown", f"{passed:g} of {least} {unit} since the last trigger", {unit: passed, "quiet": least})
