"""Intervals of sample time over which models are judged. All are half-open: ``[start, end)``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic

import numpy as np
from typing_extensions import TypeVar

from modyn_dagster.errors import ConfigError
from modyn_dagster.spec.base import as_time, seconds_of
from modyn_dagster.spec.evaluation import TumblingIntervals
from modyn_dagster.spec.load import parse_spec

#: A sample time: ``datetime64[us]``, or whole seconds.
Moment = TypeVar("Moment", np.datetime64, int, default=np.datetime64)

_SOURCE: Final = "intervals"


@dataclass(frozen=True, slots=True)
class Interval(Generic[Moment]):
    """Samples with ``start <= time < end``; ``anchor`` decides which model is active, ``model`` whose interval it is."""

    start: Moment
    end: Moment
    anchor: Moment
    model: int | None = None


def generate_intervals(
    spec: Mapping[str, Any] | TumblingIntervals, start: Moment, end: Moment, training: Sequence[tuple[Moment, Moment]] = ()
) -> list[Interval[Moment]]:
    """The intervals of a spec over samples from ``start`` to before ``end``, in order.

    Args:
        spec: the ``intervals`` block of a pipeline, parsed or as a dict; ``ConfigError`` names what is impossible in it.
        start: the first sample's time.
        end: exclusive: the last sample's time plus one microsecond (one second for integers).
        training: first and last sample time of every model, for kinds that follow them.

    >>> [(i.start, i.end) for i in generate_intervals({"kind": "tumbling", "every": "10s"}, 5, 28)]
    [(5, 15), (15, 25), (25, 28)]
    """
    parsed = spec if isinstance(spec, TumblingIntervals) else _parsed(spec)
    first, unit = _ticks(start)
    last, same_unit = _ticks(end)
    if unit != same_unit:
        raise ConfigError(_SOURCE, "end", end, f"must be of the same kind as the start {start!r}")
    spans = [tuple(_ticks(moment)[0] for moment in span) for span in training]
    found = GENERATORS[parsed.kind](parsed, _Span(first, last, unit), spans)
    return [Interval(_moment(a, unit), _moment(b, unit), _moment(anchor, unit), model) for a, b, anchor, model in found]


def closed_intervals(
    intervals: Sequence[Interval[Moment]], stream_time: Moment | None, *, finished: bool
) -> list[Interval[Moment]]:
    """Those that get a row now: stream time has passed their end, or the run is finished. No stream time, no samples yet."""
    if finished:
        return list(intervals)
    return [interval for interval in intervals if stream_time is not None and interval.end <= stream_time]


@dataclass(frozen=True, slots=True)
class _Span:
    """What the stream covers, in ticks; ``unit`` of them are a second."""

    start: int
    end: int
    unit: int


Found = Iterator[tuple[int, int, int, int | None]]


def _tumbling(spec: TumblingIntervals, span: _Span, _: Sequence[tuple[int, ...]]) -> Found:
    every = seconds_of(spec.every) * span.unit
    origin = span.start if spec.start is None else _ticks(as_time(spec.start))[0] * span.unit // 1_000_000
    # Of the grid from `origin` on, those before the first sample would be empty.
    first = origin + max(0, (span.start - origin) // every) * every
    for start in range(first, span.end, every):
        yield start, min(start + every, span.end), start, None


GENERATORS: Final[Mapping[str, Callable[[TumblingIntervals, _Span, Sequence[tuple[int, ...]]], Found]]] = {
    "tumbling": _tumbling,
}


def _parsed(spec: Mapping[str, Any]) -> TumblingIntervals:
    kind = spec.get("kind", "tumbling")
    if kind not in GENERATORS:
        raise ConfigError(_SOURCE, "kind", kind, f"must be one of {', '.join(GENERATORS)}")
    return parse_spec(dict(spec), TumblingIntervals, source=_SOURCE)


def _ticks(moment: np.datetime64 | int) -> tuple[int, int]:
    """A moment as an integer, and how many of them are a second."""
    if not isinstance(moment, np.datetime64):
        return int(moment), 1
    if np.isnat(moment):
        raise ConfigError(_SOURCE, "time", moment, "must be a time")
    return int(moment.astype("datetime64[us]").astype(np.int64)), 1_000_000


def _moment(ticks: int, unit: int) -> Any:
    return ticks if unit == 1 else np.datetime64(ticks, "us")
