"""Trial of a policy: drive it over a generated stream with made-up measurements, and record its decisions."""

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn

import numpy as np

from modyn_dagster.errors import LawBroken
from modyn_dagster.keys import ORIGIN, KeyRange
from modyn_dagster.randomness import rng_for
from modyn_dagster.triggering.conformance.streams import GeneratedStream
from modyn_dagster.triggering.measurement import DetectorNeed, DriftNeed, Measured, Need
from modyn_dagster.triggering.policy import Decision, ModelTrained, State, TriggeringPolicy
from modyn_dagster.triggering.stream.training_stream import Stream

#: Answers a need; its windows are ranges of sample numbers from 0, ``(after, until]``, instead of keys.
Measure = Callable[[str, Need], Measured]

_UNDEFINED = 0.03


def in_sample_numbers(need: Need, stream: GeneratedStream) -> Need:
    """The same need with sample numbers for keys, which do not depend on the batches."""

    def numbers(window: KeyRange) -> KeyRange:
        return KeyRange(stream.index(window.after), stream.index(window.until))

    if isinstance(need, DriftNeed):
        return replace(need, reference=numbers(need.reference), current=numbers(need.current))
    if isinstance(need, DetectorNeed):
        return replace(need, window=numbers(need.window), since=stream.index(need.since))
    calibrate = None if need.calibrate is None else numbers(need.calibrate)
    return replace(need, window=numbers(need.window), calibrate=calibrate)


def synthetic_answers(seed: int) -> Measure:
    """Answers drawn uniformly from [0, 1), a few of them undefined; another need, another answer."""

    def measure(path: str, need: Need) -> Measured:
        rng = rng_for(seed, path, repr(need))
        if isinstance(need, DetectorNeed):
            return Measured({"detections": float(rng.integers(0, 2))})
        if isinstance(need, DriftNeed):
            return Measured({name: _one(float(rng.random()), float(rng.random())) for name in sorted(need.metrics)})
        score, expected, chance = rng.random(3)
        n_samples = float(max(0, need.window.until - need.window.after))
        values = {need.metric: _one(float(score), float(chance)), "n_samples": n_samples}
        return Measured(values if need.calibrate is None else {**values, "expected_accuracy": float(expected)})

    return measure


def _one(value: float, chance: float) -> float | None:
    return None if chance < _UNDEFINED else value


Make = Callable[[], TriggeringPolicy]


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """A decision in numbers of samples, which do not depend on the batches."""

    point: int
    needs: dict[str, Need]
    fire: bool
    index: int
    reason: str
    score: float | None
    threshold: float | None

    def __str__(self) -> str:
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.name != "needs")
        needs = {path: str(need) for path, need in self.needs.items()}
        return f"({', '.join(shown)}{f', needs={needs}' if needs else ''})"


class Trial:
    """One run of a fresh policy over a stream.

    Triggers are trained or fail as the stream says, and a person triggers in between.

    Args:
        make: gives a fresh policy.
        stream: to run over.
        measure: answers needs.
        reload_every: after so many decisions, and whenever the data end, a fresh policy takes up the state.
    """

    def __init__(self, make: Make, stream: GeneratedStream, measure: Measure, *, reload_every: int | None = None) -> None:
        self._make = make
        self._stream = stream
        self._measure = measure
        self._reload_every = reload_every
        self._policy = make()
        self._last = stream.key(stream.origin - 1)
        self.noted: list[RecordedDecision] = []

    def run(self) -> list[RecordedDecision]:
        """Every decision, in order."""
        cursor = self._last
        for stream in self._stream.arriving():
            while (point := self._policy.next_point(cursor, stream)) is not None:
                self._check_point(point, cursor, stream)
                if (by_hand := self._by_hand(cursor, point)) is not None:
                    self._trigger(by_hand, stream)
                    continue
                self._step(point, stream)
                cursor = point
                if self._reload_every is not None and len(self.noted) % self._reload_every == 0:
                    self._reload()
            if self._reload_every is not None:
                self._reload()
        return self.noted

    def _step(self, point: int, stream: Stream) -> None:
        needs = {path: in_sample_numbers(need, self._stream) for path, need in self._policy.needs(point).items()}
        answers: dict[str, Measured] = {path: self._measure(path, need) for path, need in needs.items()}
        decision = self._policy.decide(point, answers)
        self._check_key(decision, point)
        index = self._stream.index(decision.key)
        at = self._stream.index(point)
        self.noted.append(RecordedDecision(at, needs, decision.fire, index, decision.reason, decision.score, decision.threshold))
        if decision.fire:
            self._trigger(decision.key, stream)

    def _by_hand(self, cursor: int, point: int) -> int | None:
        """Key of the next sample before the point at which a person triggers."""
        first = self._stream.index(max(cursor, self._last)) + (self._last >= cursor)
        flagged = np.flatnonzero(self._stream.by_hand[first : self._stream.index(point)])
        return self._stream.key(first + int(flagged[0])) if len(flagged) else None

    def _trigger(self, key: int, stream: Stream) -> None:
        self._policy.triggered(key)
        if not self._stream.fails[self._stream.index(key)]:
            n_samples = stream.count(self._last, key)
            self._policy.model_trained(ModelTrained(key, n_samples, 1.0 + 0.01 * n_samples))
        self._last = key

    def _reload(self) -> None:
        saved = self._as_json(self._policy.state_dict())
        self._policy = self._make()
        self._policy.load_state_dict(saved)
        again = self._as_json(self._policy.state_dict())
        if again != saved:
            self._broken("a restored policy has the state it was given", f"saved {saved}, then it had {again}")

    def _as_json(self, state: State) -> dict[str, Any]:
        try:
            text = json.dumps(state, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise self._error("state is JSON", f"{error}: {state!r}") from error
        restored: dict[str, Any] = json.loads(text)
        return restored

    def _check_point(self, point: int, cursor: int, stream: Stream) -> None:
        if point <= cursor:
            self._broken("points come in order", f"next_point gave {self._at(point)} after {self._at(cursor)}")
        if stream.count(ORIGIN, point) != stream.count(ORIGIN, point - 1) + 1:
            self._broken("points are samples", f"next_point gave key {point}, which no sample of the stream has")
        if (again := self._policy.next_point(cursor, stream)) != point:
            self._broken("asking again gives the same point", f"next_point gave {self._at(point)}, then {again}")

    def _check_key(self, decision: Decision, point: int) -> None:
        if decision.key > point:
            self._broken("no key lies after its point", f"key at {self._at(decision.key)}, point at {self._at(point)}")
        if decision.fire and decision.key <= self._last:
            last = self._at(self._last)
            self._broken("every trigger lies after the one before", f"key at {self._at(decision.key)}, last trigger at {last}")

    def _at(self, key: int) -> str:
        return f"sample {self._stream.index(key)}"

    def _broken(self, law: str, what: str) -> NoReturn:
        raise self._error(law, what)

    def _error(self, law: str, what: str) -> LawBroken:
        return LawBroken(law, self._stream.name, len(self.noted), what)
