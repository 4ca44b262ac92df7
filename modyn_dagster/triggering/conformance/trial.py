"""Trial of a policy: drive it over a generated stream with synthetic measurements, and record its decisions."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn

import numpy as np

from modyn_dagster.errors import LawBroken
from modyn_dagster.keys import ORIGIN, KeyRange
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.triggering.conformance.streams import GeneratedStream
from modyn_dagster.triggering.loop import drive_policy
from modyn_dagster.triggering.measurement import DetectorNeed, DriftNeed, Measured, Measurement, MeasurementSpec, Need
from modyn_dagster.triggering.policy import Decision, ModelTrained, State, TriggeringPolicy
from modyn_dagster.triggering.stream.training_stream import Stream

#: Answers a need; its windows are ranges of sample numbers from 0, ``(after, until]``, instead of keys.
Measure = Callable[[str, Need], Measured]

_UNDEFINED = 0.03


def in_sample_numbers(need: Need, stream: GeneratedStream) -> Need:
    """Replace keys of a need by sample numbers, which do not depend on the batches."""

    def numbers(window: KeyRange) -> KeyRange:
        return KeyRange(stream.index(window.after), stream.index(window.until))

    if isinstance(need, DriftNeed):
        return replace(need, reference=numbers(need.reference), current=numbers(need.current))
    if isinstance(need, DetectorNeed):
        return replace(need, window=numbers(need.window), since=stream.index(need.since))
    calibrate = None if need.calibrate is None else numbers(need.calibrate)
    return replace(need, window=numbers(need.window), calibrate=calibrate)


def synthetic_answers(seed: int) -> Measure:
    """Return answers drawn uniformly from [0, 1), a few of them undefined; every need has its own answer."""

    def measure(path: str, need: Need) -> Measured:
        rng = rng_for(seed, path, repr(need))
        if isinstance(need, DetectorNeed):
            return Measured({"detections": float(rng.integers(0, 2))})
        if isinstance(need, DriftNeed):
            return Measured({name: _value(float(rng.random()), float(rng.random())) for name in sorted(need.metrics)})
        score, expected, chance = rng.random(3)
        n_samples = float(max(0, need.window.until - need.window.after))
        values = {need.metric: _value(float(score), float(chance)), "n_samples": n_samples}
        return Measured(values if need.calibrate is None else {**values, "expected_accuracy": float(expected)})

    return measure


def _value(value: float, chance: float) -> float | None:
    return None if chance < _UNDEFINED else value


Make = Callable[[], TriggeringPolicy]


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """Decision in sample numbers, which do not depend on the batches."""

    point: int
    needs: dict[str, Need]
    fire: bool
    index: int
    reason: str
    score: float | None
    threshold: float | None

    def __str__(self) -> str:
        values = (f"{field.name}={getattr(self, field.name)!r}" for field in fields(self) if field.name != "needs")
        needs = {path: str(need) for path, need in self.needs.items()}
        return f"({', '.join(values)}{f', needs={needs}' if needs else ''})"


class CheckedPolicy(TriggeringPolicy):
    """A policy with every call checked against the laws of single calls; ``LawBroken`` names the call.

    Args:
        make: returns a fresh policy.
        stream: the stream of the trial, for messages.
    """

    def __init__(self, make: Make, stream: GeneratedStream) -> None:
        self._make = make
        self._policy = make()
        self._stream = stream
        self._n_decisions = 0
        self.last_trigger = stream.key(stream.origin - 1)

    def next_point(self, cursor: int, stream: Stream) -> int | None:
        """Check that points come in order, are samples, and stay the same when asked again."""
        point = self._policy.next_point(cursor, stream)
        if point is None:
            return None
        if point <= cursor:
            self._broken("points come in order", f"next_point gave {self._at(point)} after {self._at(cursor)}")
        if stream.count(ORIGIN, point) != stream.count(ORIGIN, point - 1) + 1:
            self._broken("points are samples", f"next_point gave key {point}, which no sample of the stream has")
        if (again := self._policy.next_point(cursor, stream)) != point:
            self._broken("asking again gives the same point", f"next_point gave {self._at(point)}, then {again}")
        return point

    def needs(self, point: int) -> MeasurementSpec:
        """Return the policy's needs."""
        return self._policy.needs(point)

    def decide(self, point: int, measurement: Measurement | None = None) -> Decision:
        """Check that the key lies after the last trigger and not after the point."""
        decision = self._policy.decide(point, measurement)
        if decision.key > point:
            self._broken("no key lies after its point", f"key at {self._at(decision.key)}, point at {self._at(point)}")
        if decision.fire and decision.key <= self.last_trigger:
            last = self._at(self.last_trigger)
            self._broken("every trigger lies after the one before", f"key at {self._at(decision.key)}, last trigger at {last}")
        self._n_decisions += 1
        return decision

    def triggered(self, key: int) -> None:
        """Pass a trigger on."""
        self._policy.triggered(key)
        self.last_trigger = key

    def model_trained(self, trained: ModelTrained) -> None:
        """Pass a model on."""
        self._policy.model_trained(trained)

    def state_dict(self) -> State:
        """Check that the state is JSON."""
        state = self._policy.state_dict()
        try:
            text = json.dumps(state, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise self._error("state is JSON", f"{error}: {state!r}") from error
        restored: State = json.loads(text)
        return restored

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Check that a fresh policy takes up a state as it is."""
        self._policy = self._make()
        self._policy.load_state_dict(state)
        again = self.state_dict()
        if again != state:
            self._broken("a restored policy has the state it was given", f"saved {state}, then it had {again}")

    def _at(self, key: int) -> str:
        return f"sample {self._stream.index(key)}"

    def _broken(self, law: str, text: str) -> NoReturn:
        raise self._error(law, text)

    def _error(self, law: str, text: str) -> LawBroken:
        return LawBroken(law, self._stream.name, self._n_decisions, text)


class Trial:
    """One run of a fresh policy over a stream, with trainings that fail and manual triggers where the stream says so.

    Args:
        make: returns a fresh policy.
        stream: the stream to run over.
        measure: answers needs.
        reload_every: number of decisions after which a fresh policy takes up the state, as it does whenever the data end.
    """

    def __init__(self, make: Make, stream: GeneratedStream, measure: Measure, *, reload_every: int | None = None) -> None:
        self._stream = stream
        self._measure = measure
        self._reload_every = reload_every
        self._policy = CheckedPolicy(make, stream)
        self._cursor = self._policy.last_trigger
        self._decisions: list[RecordedDecision] = []

    def run(self) -> list[RecordedDecision]:
        """Return every decision, in order."""
        n_samples = len(self._stream.times)
        indices = np.flatnonzero(self._stream.by_hand[:n_samples]).tolist()
        manual = [self._stream.key(index) for index in indices if index >= self._stream.origin]
        for stream in self._stream.arriving():
            while manual and stream.count(manual[0] - 1, manual[0]) == 1:
                key = manual.pop(0)
                self._decide(stream, until=key)
                if key > self._policy.last_trigger:
                    last = self._policy.last_trigger
                    self._policy.triggered(key)
                    self._train(last, key, stream)
            self._decide(stream)
            if self._reload_every is not None:
                self._policy.load_state_dict(self._policy.state_dict())
        return self._decisions

    def _decide(self, stream: Stream, until: int | None = None) -> None:
        last = self._policy.last_trigger
        for point, decision, needs, _ in drive_policy(self._policy, self._cursor, stream, self._answers, until=until):
            self._decisions.append(
                RecordedDecision(
                    self._stream.index(point),
                    self._in_sample_numbers(needs),
                    decision.fire,
                    self._stream.index(decision.key),
                    decision.reason,
                    decision.score,
                    decision.threshold,
                )
            )
            self._cursor = point
            if decision.fire:
                self._train(last, decision.key, stream)
                last = decision.key
            if self._reload_every is not None and len(self._decisions) % self._reload_every == 0:
                self._policy.load_state_dict(self._policy.state_dict())

    def _train(self, last: int, key: int, stream: Stream) -> None:
        if not self._stream.fails[self._stream.index(key)]:
            n_samples = stream.count(last, key)
            self._policy.model_trained(ModelTrained(key, n_samples, 1.0 + 0.01 * n_samples))

    def _answers(self, point: int, needs: MeasurementSpec) -> Measurement:
        return {path: self._measure(path, need) for path, need in self._in_sample_numbers(needs).items()}

    def _in_sample_numbers(self, needs: MeasurementSpec) -> dict[str, Need]:
        return {path: in_sample_numbers(need, self._stream) for path, need in needs.items()}
