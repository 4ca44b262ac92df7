"""Measurements for policies on trial: made up, but always the same for the same need."""

from collections.abc import Callable
from dataclasses import replace

from modyn_dagster.keys import KeyRange
from modyn_dagster.randomness import rng_for
from modyn_dagster.triggering.conformance.streams import GeneratedStream
from modyn_dagster.triggering.measurement import DetectorNeed, DriftNeed, Measured, Need

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


def made_up(seed: int) -> Measure:
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
