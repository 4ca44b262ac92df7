"""Generators of intervals, one per kind, on integer ticks: whole seconds or microseconds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from modyn_dagster.spec.intervals import (
    BetweenTriggers,
    FixedIntervals,
    IntervalBlock,
    OffsetIntervals,
    PeriodicIntervals,
    SlidingIntervals,
    TumblingIntervals,
    length_of,
    ticks_of,
)


class TickSpan(NamedTuple):
    """Extent of the stream, ``[start, end)`` in ticks.

    Attributes:
        start: first tick.
        end: first tick after the last sample.
        unit: ticks per second.
        cut: no tumbling or sliding interval ends after ``end``.
    """

    start: int
    end: int
    unit: int
    cut: bool


class TickInterval(NamedTuple):
    """An interval ``[start, end)`` in ticks, and the index of the model it belongs to."""

    start: int
    end: int
    model: int | None = None


#: First and last sample time of a model, both inclusive.
Training = tuple[int, int]


def _tumbling(block: TumblingIntervals, span: TickSpan, _: Sequence[Training]) -> Iterator[TickInterval]:
    """Adjacent intervals of one length."""
    return _windows(block, span, block.every)


def _sliding(block: SlidingIntervals, span: TickSpan, _: Sequence[Training]) -> Iterator[TickInterval]:
    """Overlapping intervals of one length."""
    return _windows(block, span, block.length)


def _windows(block: TumblingIntervals | SlidingIntervals, span: TickSpan, length: str | int) -> Iterator[TickInterval]:
    reach = length_of(length) * span.unit
    for start in _grid(block, span, reach):
        yield TickInterval(start, min(start + reach, span.end) if span.cut else start + reach)


def _periodic(block: PeriodicIntervals, span: TickSpan, _: Sequence[Training]) -> Iterator[TickInterval]:
    """Intervals around the moments of a grid."""
    before, after = length_of(block.before) * span.unit, length_of(block.after) * span.unit
    for moment in _grid(block, span, max(after, 1)):
        yield TickInterval(moment - before, moment + after)


def _grid(block: TumblingIntervals | SlidingIntervals | PeriodicIntervals, span: TickSpan, reach: int) -> range:
    """Moments of a grid before the end of the stream, from the first whose interval reaches into it."""
    every = length_of(block.every) * span.unit
    if block.start is None:
        return range(span.start, span.end, every)
    origin = ticks_of(block.start) * span.unit // 1_000_000
    return range(origin + max(0, (span.start - origin - reach) // every + 1) * every, span.end, every)


def _between_triggers(_: BetweenTriggers, __: TickSpan, training: Sequence[Training]) -> Iterator[TickInterval]:
    """Intervals of the samples that each model was the first to see."""
    reached = None
    for first, last in training:
        # No sample counts twice: a model that ends no later than the one before it has an empty interval.
        start = first if reached is None else reached
        reached = max(start, last + 1)
        yield TickInterval(start, reached)


def _fixed(block: FixedIntervals, span: TickSpan, _: Sequence[Training]) -> Iterator[TickInterval]:
    """Listed intervals."""
    for start, end in block.intervals:
        yield TickInterval(*(ticks_of(moment) * span.unit // 1_000_000 for moment in (start, end)))


def _offsets(block: OffsetIntervals, span: TickSpan, training: Sequence[Training]) -> Iterator[TickInterval]:
    """Intervals before, during and after the training window of each model."""
    for model, (first, last) in enumerate(training):
        for offset in block.offsets:
            yield TickInterval(*_at_offset(offset, span, first, last + 1), model)


def _at_offset(offset: str | int, span: TickSpan, first: int, after: int) -> tuple[int, int]:
    if offset == "inf":
        return after, max(after, span.end)
    if offset == "-inf":
        return min(span.start, first), first
    distance = length_of(offset) * span.unit
    if distance == 0:
        return first, after
    return (after, after + distance) if distance > 0 else (first + distance, first)


#: A generator of intervals, of a block of its kind.
Generator = Callable[[Any, TickSpan, Sequence[Training]], Iterator[TickInterval]]
#: By kind, without those of the user's.
BUILT_IN: Final[Mapping[type[IntervalBlock], Generator]] = {
    TumblingIntervals: _tumbling,
    SlidingIntervals: _sliding,
    PeriodicIntervals: _periodic,
    BetweenTriggers: _between_triggers,
    FixedIntervals: _fixed,
    OffsetIntervals: _offsets,
}
