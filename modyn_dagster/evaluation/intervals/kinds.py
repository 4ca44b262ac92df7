"""One generator per kind of interval, on integer ticks: whole seconds, or microseconds."""

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
    """What the stream covers, ``[start, end)`` in ticks; ``unit`` of them are a second. ``cut``: no interval goes beyond."""

    start: int
    end: int
    unit: int
    cut: bool


class TickInterval(NamedTuple):
    """An interval ``[start, end)`` in ticks, and the model whose it is."""

    start: int
    end: int
    model: int | None = None


#: First and last sample time of a model, both inclusive.
Training = tuple[int, int]


def _tumbling(block: TumblingIntervals, span: TickSpan, _: Sequence[Training]) -> Iterator[TickInterval]:
    return _windows(block, span, block.every)


def _sliding(block: SlidingIntervals, span: TickSpan, _: Sequence[Training]) -> Iterator[TickInterval]:
    return _windows(block, span, block.length)


def _windows(block: TumblingIntervals | SlidingIntervals, span: TickSpan, length: str | int) -> Iterator[TickInterval]:
    reach = length_of(length) * span.unit
    for start in _grid(block, span, reach):
        yield TickInterval(start, min(start + reach, span.end) if span.cut else start + reach)


def _periodic(block: PeriodicIntervals, span: TickSpan, _: Sequence[Training]) -> Iterator[TickInterval]:
    before, after = length_of(block.before) * span.unit, length_of(block.after) * span.unit
    for moment in _grid(block, span, max(after, 1)):
        yield TickInterval(moment - before, moment + after)


def _grid(block: TumblingIntervals | SlidingIntervals | PeriodicIntervals, span: TickSpan, reach: int) -> range:
    """The moments of a grid below the span's end, from the first whose reach comes to samples at all."""
    every = length_of(block.every) * span.unit
    if block.start is None:
        return range(span.start, span.end, every)
    origin = ticks_of(block.start) * span.unit // 1_000_000
    return range(origin + max(0, (span.start - origin - reach) // every + 1) * every, span.end, every)


def _between_triggers(_: BetweenTriggers, __: TickSpan, training: Sequence[Training]) -> Iterator[TickInterval]:
    reached = None
    for first, last in training:
        # A model that ends no later than the one before it has nothing of its own: no sample counts twice.
        start = first if reached is None else reached
        reached = max(start, last + 1)
        yield TickInterval(start, reached)


def _fixed(block: FixedIntervals, span: TickSpan, _: Sequence[Training]) -> Iterator[TickInterval]:
    for start, end in block.intervals:
        yield TickInterval(*(ticks_of(moment) * span.unit // 1_000_000 for moment in (start, end)))


def _offsets(block: OffsetIntervals, span: TickSpan, training: Sequence[Training]) -> Iterator[TickInterval]:
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


GENERATORS: Final[Mapping[type[IntervalBlock], Callable[[Any, TickSpan, Sequence[Training]], Iterator[TickInterval]]]] = {
    TumblingIntervals: _tumbling,
    SlidingIntervals: _sliding,
    PeriodicIntervals: _periodic,
    BetweenTriggers: _between_triggers,
    FixedIntervals: _fixed,
    OffsetIntervals: _offsets,
}
