"""User code named by import path in tests, and policies that break the laws."""

import itertools
import random
from collections.abc import Mapping
from typing import Any

from modyn_dagster.keys import ordinal_of
from modyn_dagster.triggering import Decision, Measurement, Stream, TriggeringPolicy
from modyn_dagster.triggering.criteria import Criterion, Verdict
from modyn_dagster.triggering.criteria.threshold import FixedThreshold


class EveryNth(TriggeringPolicy):
    """Counts from its own last point, which it trusts the cursor to be."""

    def __init__(self, every: int = 9) -> None:
        self.every = every

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        return stream.nth_after(cursor, self.every)

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        return Decision(True, point, f"{self.every} more samples")

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


class OneBehind(EveryNth):
    """Trains up to the sample before its point, as a policy does that notices something only afterwards."""

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        point = super().next_point(cursor, stream)
        self._before = None if point is None else stream.before(point)
        return point

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        assert self._before is not None
        return Decision(True, self._before, "noticed afterwards")


class OncePerBatch(EveryNth):
    """Breaks the law of batches: decides at the first sample of each."""

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        point = stream.nth_after(cursor, 1)
        while point is not None and ordinal_of(point) == ordinal_of(cursor):
            point = stream.nth_after(point, 1)
        return point


class Forgetful(EveryNth):
    """Breaks the law of state: fires at every third point, counted in an attribute that it does not save."""

    def __init__(self) -> None:
        super().__init__()
        self._points = 0

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        self._points += 1
        return Decision(self._points % 3 == 0, point, "third point" if self._points % 3 == 0 else "not yet")


class KeepsTuples(EveryNth):
    """Breaks the law of state: what it saves is no longer what it was after a trip through JSON."""

    def __init__(self) -> None:
        super().__init__()
        self._fired: dict[Any, int] = {}

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        self._fired[point] = 1
        return Decision(True, point, "always")

    def state_dict(self) -> dict[str, Any]:
        return {"fired": dict(self._fired)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._fired = {int(key): n for key, n in state.get("fired", {}).items()}
        if self._fired:
            del self._fired[next(iter(self._fired))]


class KeepsObjects(EveryNth):
    """Breaks the law of state: a set is not JSON."""

    def state_dict(self) -> dict[str, Any]:
        return {"seen": {1, 2}}


class Rolls(EveryNth):
    """Breaks the law of seeds: decides by dice that nobody seeded."""

    _dice = random.SystemRandom()

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        return Decision(self._dice.random() < 0.5, point, "dice")


class LooksAhead(EveryNth):
    """Breaks the law of prefixes: fires when much has arrived after the point."""

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        point = super().next_point(cursor, stream)
        self._rest = 0 if point is None else stream.count(point, 2**62)
        return point

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        return Decision(self._rest > 100, point, "much to come" if self._rest > 100 else "little to come")


class StandsStill(EveryNth):
    """Breaks the order of points."""

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        return cursor if cursor >= 0 else super().next_point(cursor, stream)


class BetweenSamples(EveryNth):
    """Names points that are no samples where some samples are not for training."""

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        point = super().next_point(cursor, stream)
        return None if point is None else point + 1


class TrainsAgain(EveryNth):
    """Breaks the order of keys: always names the first sample it saw."""

    def __init__(self) -> None:
        super().__init__()
        self._first: int | None = None

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        self._first = point if self._first is None else self._first
        return Decision(True, self._first, "from the start")

    def state_dict(self) -> dict[str, Any]:
        return {"first": self._first}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._first = state.get("first")


class RunsAhead(EveryNth):
    """Names a key after its point."""

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        return Decision(True, point + 1, "one more")


class CountsQuestions(EveryNth):
    """Gives another point each time it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = itertools.count(1)

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        return stream.nth_after(cursor, next(self._asked))


class NeverDecides(EveryNth):
    def next_point(self, cursor: int, stream: Stream) -> int | None:
        return None


def no_policy(**config: object) -> str:
    return "a string"


def named_vote(votes: dict[str, bool], decisive: str) -> bool:
    """An ensemble's rule: one member decides alone."""
    return votes[decisive]


def counting_vote(votes: dict[str, bool]) -> int:
    """Not a rule: a number, not a bool."""
    return sum(votes.values())


def bounded(limit: float, direction: str) -> Criterion:
    """A criterion by a function."""
    return FixedThreshold(limit, "lower" if direction == "lower" else "higher")


class Impatient(Criterion):
    """Says yes where a verdict is expected."""

    def __init__(self, direction: str) -> None:
        self.direction = direction

    def judge_defined(self, name: str, score: float) -> Verdict:
        return True  # type: ignore[return-value]  # that is what is wrong with it


class Secretive(Criterion):
    """Fires at every third score, and tells nobody how many there were."""

    def __init__(self, direction: str) -> None:
        self.n = 0

    def judge_defined(self, name: str, score: float) -> Verdict:
        self.n += 1
        return Verdict(self.n % 3 == 0, f"{name} number {self.n}", score)


def no_criterion(direction: str) -> str:
    return direction
