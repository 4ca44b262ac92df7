"""The laws of generators of intervals of the user's own: ``check_intervals``."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from modyn_dagster.errors import ConfigError, LawBroken
from modyn_dagster.evaluation.intervals.custom import IntervalGenerator, called
from modyn_dagster.evaluation.intervals.kinds import TickInterval, TickSpan, Training
from modyn_dagster.reproducibility.global_randomness import with_global_seed
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.spec.intervals import CustomIntervals

_AGREE: Final = "equal calls agree"
_STAYS: Final = "an interval that has closed stays the same"
_COMES: Final = "an interval is there before it closes"
#: Ticks per second of sample times, microseconds.
_UNIT: Final = 1_000_000
_DAY: Final = 86_400 * _UNIT
#: Lengths of the generated streams.
_LENGTHS: Final = {"an hour": _DAY // 24, "a week": 7 * _DAY, "a year": 365 * _DAY, "thirty years": 30 * 365 * _DAY}
#: Looks at each stream while it grows.
_LOOKS: Final = 8


def check_intervals(
    factory: Callable[..., IntervalGenerator],
    config: Mapping[str, Any] | None = None,
    *,
    follows_models: bool = False,
    seed: int = 0,
) -> None:
    """Check that a generator of intervals obeys the laws of intervals.

    1. It returns pairs of moments, the start before the end, each pair once, for streams of any length.
    2. Equal calls agree: called again, and made again, whatever the global random states, it returns the same in the same order.
    3. An interval that has closed stays the same: when the stream grows, and later models come, none disappears.
    4. An interval is there before it closes: none appears whose end the stream had already passed.

    Args:
        factory: of the pipeline's block.
        config: its keyword arguments.
        follows_models: as in the block.
        seed: another one, other streams and trainings.

    Raises:
        LawBroken: names the law and the stream.
        ConfigError: the function fails, or returns anything else; or no stream has an interval.
    """
    made = [factory(**(config or {})) for _ in range(2)]
    block = CustomIntervals.model_construct(
        kind="custom", factory="the function", config={}, follows_models=follows_models, anchor="start"
    )
    n_intervals = 0
    for name, length in _LENGTHS.items():
        before: tuple[int, set[TickInterval]] | None = None
        for span, training in _growing(seed, name, length):
            found = list(called(made[0], block, span, training))
            n_intervals += len(found)
            for number, generator in enumerate((made[0], made[1])):
                again = with_global_seed(number, partial(_listed, generator, block, span, training))
                if again != found:
                    raise LawBroken(_AGREE, name, None, _difference(found, again))
            if before is not None:
                _compare(name, *before, {each for each in found if each.end < before[0]}, follows_models=follows_models)
            before = span.end, {each for each in found if each.end < span.end}
    if n_intervals == 0:
        raise ConfigError("check_intervals", "factory", "the function", "returns no interval for streams of up to thirty years")


def _listed(generator: IntervalGenerator, block: CustomIntervals, span: TickSpan, training: list[Training]) -> list[TickInterval]:
    return list(called(generator, block, span, training))


def _compare(name: str, end: int, closed: set[TickInterval], now: set[TickInterval], *, follows_models: bool) -> None:
    at = np.datetime64(end, "us")
    for gone in sorted(closed - now):
        raise LawBroken(_STAYS, name, None, f"{_text(gone)} was there when the stream ended at {at}, and is not later")
    # A training that ends before the stream does may still be the newest thing to come.
    for new in [] if follows_models else sorted(now - closed):
        raise LawBroken(_COMES, name, None, f"{_text(new)} was not there when the stream ended at {at}, and is later")


def _growing(seed: int, name: str, length: int) -> Iterator[tuple[TickSpan, list[Training]]]:
    """Extents of a stream that grows, with the models that were trained by then."""
    rng = rng_for(seed, name)
    start = int(rng.integers(0, 50 * 365 * _DAY))
    ends = np.sort(rng.integers(1, length, size=_LOOKS)) + start + 1
    lasts = np.sort(rng.integers(0, length, size=_LOOKS)) + start
    training = [(start, int(last)) for last in lasts]
    for end in ends.tolist():
        yield TickSpan(start, end, _UNIT, cut=False), [each for each in training if each[1] < end]


def _difference(found: list[TickInterval], again: list[TickInterval]) -> str:
    for number, (one, other) in enumerate(zip(found, again, strict=False)):
        if one != other:
            return f"interval {number} is {_text(one)}, then {_text(other)}"
    return f"there are {len(found)} intervals, then {len(again)}"


def _text(interval: TickInterval) -> str:
    return f"[{np.datetime64(interval.start, 'us')}, {np.datetime64(interval.end, 'us')})"
