"""Intervals of sample time that models are scored on. All are half-open: ``[start, end)``."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic

import numpy as np
from typing_extensions import TypeVar

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.intervals.custom import custom_intervals
from modyn_dagster.evaluation.intervals.kinds import BUILT_IN, Generator, TickInterval, TickSpan
from modyn_dagster.spec.intervals import INTERVAL_KINDS, CustomIntervals, IntervalBlock, PeriodicIntervals, length_of
from modyn_dagster.spec.load import parse_spec

#: A sample time: ``datetime64[us]``, or whole seconds.
Moment = TypeVar("Moment", np.datetime64, int, default=np.datetime64)

_SOURCE: Final = "intervals"
_GENERATORS: Final[Mapping[type[IntervalBlock], Generator]] = {**BUILT_IN, CustomIntervals: custom_intervals}


@dataclass(frozen=True, slots=True)
class Interval(Generic[Moment]):
    """Samples with ``start <= time < end``.

    Attributes:
        start: first moment of the interval.
        end: first moment after it.
        anchor: the newest model trained before it is the active one.
        model: index of the model that the interval belongs to; None: to all.
    """

    start: Moment
    end: Moment
    anchor: Moment
    model: int | None = None


def generate_intervals(
    spec: Mapping[str, Any] | IntervalBlock,
    start: Moment,
    end: Moment,
    training: Sequence[tuple[Moment, Moment]] = (),
    *,
    cut: bool = True,
) -> list[Interval[Moment]]:
    """The intervals of a spec over samples from ``start`` to before ``end``, in the order of their kind.

    Tumbling, sliding and periodic intervals are in order of time, those between triggers and at offsets in order of the models,
    fixed intervals and the offsets of one model in the order of the spec, and those of a function of yours in its order.

    Args:
        spec: the ``intervals`` block of a pipeline, parsed or as a dict; an impossible value raises ``ConfigError``.
        start: the first sample's time.
        end: exclusive: the last sample's time plus one unit, a microsecond (a second for integers).
        training: first and last sample time of every model, both inclusive, for the kinds that follow them.
        cut: tumbling and sliding intervals end at ``end``; False: an interval stays the same as more data arrive.

    >>> [(i.start, i.end) for i in generate_intervals({"kind": "tumbling", "every": "10s"}, 5, 28)]
    [(5, 15), (15, 25), (25, 28)]
    """
    block = _parsed(spec) if isinstance(spec, Mapping) else spec
    first, unit = _ticks("start", start)
    span = TickSpan(first, _same_ticks("end", end, unit), unit, cut)
    models = [_training(number, pair, unit) for number, pair in enumerate(training)]
    return [_interval(block, ticks, unit) for ticks in _GENERATORS[type(block)](block, span, models)]


def anchor_of(block: IntervalBlock, start: Moment, end: Moment) -> Moment:
    """Anchor of an interval: its start, centre (rounded down) or end, or the moment of a periodic one.

    Args:
        block: settings that generated the interval.
        start: of the interval, ``datetime64`` or integer seconds.
        end: of the interval, of the same type.

    >>> from modyn_dagster.spec.intervals import TumblingIntervals
    >>> anchor_of(TumblingIntervals(every="10s", anchor="center"), 10, 20)
    15
    """
    first, unit = _ticks("start", start)
    anchor: Moment = _moment(_anchor(block, first, _same_ticks("end", end, unit), unit), unit)
    return anchor


def closed_intervals(
    intervals: Sequence[Interval[Moment]], stream_time: Moment | None, *, finished: bool
) -> list[Interval[Moment]]:
    """Intervals that are scored now: stream time has passed their end, or the run is finished.

    Args:
        intervals: of the run.
        stream_time: latest sample time; None before the first sample.
        finished: no more samples will arrive, so that all intervals are closed.

    >>> [i.end for i in closed_intervals([Interval(0, 5, 0), Interval(5, 10, 5)], 7, finished=False)]
    [5]
    """
    if finished:
        return list(intervals)
    return [interval for interval in intervals if stream_time is not None and interval.end <= stream_time]


def _interval(block: IntervalBlock, ticks: TickInterval, unit: int) -> Interval[Any]:
    anchor = _anchor(block, ticks.start, ticks.end, unit)
    return Interval(_moment(ticks.start, unit), _moment(ticks.end, unit), _moment(anchor, unit), ticks.model)


def _anchor(block: IntervalBlock, start: int, end: int, unit: int) -> int:
    if isinstance(block, PeriodicIntervals) and block.anchor is None:
        return start + length_of(block.before) * unit
    return {"start": start, "center": (start + end) // 2, "end": end}[block.anchor or "start"]


def _parsed(spec: Mapping[str, Any]) -> IntervalBlock:
    kind = spec.get("kind", "tumbling")
    if not isinstance(kind, str) or kind not in INTERVAL_KINDS:
        raise ConfigError(_SOURCE, "kind", kind, f"must be one of {', '.join(INTERVAL_KINDS)}")
    return parse_spec(dict(spec), INTERVAL_KINDS[kind], source=_SOURCE)


def _training(number: int, pair: Sequence[Any], unit: int) -> tuple[int, int]:
    first, last = (_same_ticks(f"training.{number}", moment, unit) for moment in pair)
    if first > last:
        raise ConfigError(_SOURCE, f"training.{number}", tuple(pair), "the first sample's time must not lie after the last one's")
    return first, last


def _same_ticks(field: str, moment: np.datetime64 | int, unit: int) -> int:
    ticks, own_unit = _ticks(field, moment)
    if own_unit != unit:
        raise ConfigError(_SOURCE, field, moment, "must be of the same kind as the start: datetime64, or integer seconds")
    return ticks


def _ticks(field: str, moment: np.datetime64 | int) -> tuple[int, int]:
    """A moment in integer ticks, and the number of ticks per second."""
    if isinstance(moment, np.datetime64):
        if np.isnat(moment):
            raise ConfigError(_SOURCE, field, moment, "must be a time")
        return int(moment.astype("datetime64[us]").astype(np.int64)), 1_000_000
    try:
        return operator.index(moment), 1
    except TypeError:
        raise ConfigError(_SOURCE, field, moment, "must be a datetime64 or integer seconds") from None


def _moment(ticks: int, unit: int) -> Any:
    return ticks if unit == 1 else np.datetime64(ticks, "us")
