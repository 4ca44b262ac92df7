"""What waiting costs, in the units of its signal, from the last trigger on."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from modyn_dagster.keys import ORIGIN, KeyRange
from modyn_dagster.triggering.measurement import Measured, PerformanceNeed
from modyn_dagster.triggering.policies.batched import Place, value_of
from modyn_dagster.triggering.policies.misclassification_tally import MisclassificationTally
from modyn_dagster.triggering.policies.training_windows import TrainingWindows
from modyn_dagster.triggering.policy import State

_SECOND: Final = 1_000_000


class Regret(ABC):
    """Adds up from point to point; a trigger sets it to 0."""

    unit: str

    @abstractmethod
    def need(self, place: Place, windows: TrainingWindows) -> PerformanceNeed | None:
        """What to measure at a place, if anything."""

    @abstractmethod
    def at(self, place: Place, measured: Measured | None) -> float | None:
        """The regret at a place, asked at each once; None where it cannot be told."""

    @abstractmethod
    def reset(self, key: int) -> None:
        """A trigger was made that trains up to ``key``: what waits after it counts from now on."""

    @abstractmethod
    def state_dict(self) -> State:
        """What later points add to, as JSON values."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the state of ``state_dict``; an empty state is a fresh start."""


class LatencyRegret(Regret):
    """Data-incorporation latency: how long each sample since the last trigger has waited, added up, in sample-seconds.

    The area under the number of waiting samples over sample time. It is kept in whole microseconds: exact, whatever the
    batches. Each sample is looked at once; those that wait already add their number times the time that has passed.
    """

    unit = "sample-seconds"

    def __init__(self) -> None:
        self._counted = ORIGIN
        self._now = self._waiting = self._microseconds = 0

    def __repr__(self) -> str:
        return "LatencyRegret()"

    def need(self, place: Place, windows: TrainingWindows) -> None:
        """Nothing: the stream tells."""

    def at(self, place: Place, measured: Measured | None) -> float:
        """Add what has waited since the last point."""
        now = place.stream.moment(place.point)
        assert now is not None, "a point is a sample"  # noqa: S101 - for the type checker
        if self._waiting:
            self._microseconds += self._waiting * (now - self._now)
        self._microseconds += place.stream.waited(self._counted, place.point)
        self._waiting += place.stream.count(self._counted, place.point)
        self._counted, self._now = place.point, now
        return self._microseconds / _SECOND

    def reset(self, key: int) -> None:
        """Samples after the key are counted anew."""
        self._counted = key
        self._now = self._waiting = self._microseconds = 0

    def state_dict(self) -> State:
        """Key counted to and its time in microseconds, waiting samples, and their microseconds."""
        return {"counted": self._counted, "now": self._now, "waiting": self._waiting, "microseconds": self._microseconds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up all four."""
        self._counted = int(state.get("counted", ORIGIN))
        self._now = int(state.get("now", 0))
        self._waiting = int(state.get("waiting", 0))
        self._microseconds = int(state.get("microseconds", 0))


class MisclassificationRegret(Regret):
    """Misclassifications since the last trigger beyond those that the expected accuracy allows."""

    unit = "misclassifications"

    def __init__(self, tally: MisclassificationTally) -> None:
        self.tally = tally

    def __repr__(self) -> str:
        return f"MisclassificationRegret({self.tally!r})"

    def need(self, place: Place, windows: TrainingWindows) -> PerformanceNeed:
        """The accuracy on what is new and not trained on."""
        calibrate = windows.newest(place.stream) if self.tally.calibrates else None
        return PerformanceNeed(place.ordinal, KeyRange(place.unseen_after, place.point), "accuracy", calibrate=calibrate)

    def at(self, place: Place, measured: Measured | None) -> float | None:
        """Count those since the last point; None where no accuracy could be measured."""
        accuracy, expected = value_of(measured, "accuracy", place.point), self.tally.expected(measured, place.point)
        n = value_of(measured, "n_samples", place.point)
        if accuracy is None or expected is None or n is None or not isfinite(accuracy):
            return None
        self.tally.add(self.tally.among(n, accuracy, expected))
        return self.tally.total

    def reset(self, key: int) -> None:
        """Nothing is counted yet."""
        self.tally.reset()

    def state_dict(self) -> State:
        """The count."""
        return self.tally.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the count."""
        self.tally.load_state_dict(state)
