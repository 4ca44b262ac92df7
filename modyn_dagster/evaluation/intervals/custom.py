"""Intervals of the user's own: a function of the stream's extent, by import path."""

import operator
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from itertools import islice
from typing import Any, Final, Protocol, cast

import numpy as np

from modyn_dagster.errors import ConfigError
from modyn_dagster.evaluation.intervals.kinds import TickInterval, TickSpan, Training
from modyn_dagster.imports import made_by_factory
from modyn_dagster.spec.base import as_time
from modyn_dagster.spec.intervals import CustomIntervals, IntervalBlock

_SOURCE: Final = "intervals"
#: Most intervals of one function, so that one that never ends is an error.
MOST: Final = 1_000_000


class IntervalGenerator(Protocol):
    """Pure function of the stream's extent. An interval that has closed must stay the same when more data and models come."""

    def __call__(self, start: Any, end: Any, training: Sequence[tuple[Any, Any]], /) -> Iterable[tuple[Any, Any]]:
        """Half-open intervals ``[start, end)``, each once.

        Args:
            start: first sample's time, ``datetime64[us]``; whole seconds where ``generate_intervals`` was given those.
            end: first moment after the last sample, of the same type. It grows with the stream.
            training: first and last sample time of every model so far, both inclusive; empty without ``follows_models``.

        Returns:
            Pairs of moments of the same type, ``datetime`` or ``date`` too. An interval may end after ``end``: it is scored once
            the stream has passed it.
        """


def interval_generator(block: CustomIntervals, *, source: str = _SOURCE, field: str = "") -> IntervalGenerator:
    """Function that ``factory(**config)`` returns.

    Args:
        block: of the spec.
        source: file or pipeline of the block, for errors.
        field: of the block there; empty where the source is the block itself.

    Raises:
        ImportPathError: the path cannot be imported, or its result cannot be called.
        ConfigError: the factory refused its config.
    """
    what = "a function of a start, an end and trainings"
    return cast(IntervalGenerator, made_by_factory(block.factory, block.config, what=what, source=source, field=field))


def check_interval_code(block: IntervalBlock, *, source: str) -> None:
    """Call the factory of a user's intervals in a pipeline; does nothing for other kinds. Raises as ``interval_generator``."""
    if isinstance(block, CustomIntervals):
        interval_generator(block, source=source, field="evaluation.intervals")


def custom_intervals(block: CustomIntervals, span: TickSpan, training: Sequence[Training]) -> Iterator[TickInterval]:
    """Intervals of the user's function. Raises ``ConfigError`` where it fails, or returns none."""
    return called(interval_generator(block), block, span, training)


def called(
    generator: IntervalGenerator, block: CustomIntervals, span: TickSpan, training: Sequence[Training]
) -> Iterator[TickInterval]:
    """Call a function of the user's, and check what it returns. Raises ``ConfigError``."""
    spans = [(_moment(first, span.unit), _moment(last, span.unit)) for first, last in training] if block.follows_models else []
    try:
        pairs = list(islice(generator(_moment(span.start, span.unit), _moment(span.end, span.unit), spans), MOST + 1))
    except Exception as error:
        raise ConfigError(_SOURCE, "factory", block.factory, f"failed: {type(error).__name__}: {error}") from error
    if len(pairs) > MOST:
        raise ConfigError(_SOURCE, "factory", block.factory, f"returned more than {MOST:,} intervals; a function must end")
    seen = set[tuple[int, int]]()
    for found, pair in enumerate(pairs):
        start, end = _pair(block, found, pair, span.unit)
        if start >= end:
            raise _refused(block, found, pair, "its start must lie before its end, which is exclusive")
        if (start, end) in seen:
            raise _refused(block, found, pair, "it is there twice")
        seen.add((start, end))
        yield TickInterval(start, end)


def _pair(block: CustomIntervals, number: int, pair: Any, unit: int) -> tuple[int, int]:
    try:
        start, end = pair
        return _ticks(start, unit), _ticks(end, unit)
    except (TypeError, ValueError, OverflowError):
        kind = "integers (seconds)" if unit == 1 else "datetime64, datetime or date"
        raise _refused(block, number, pair, f"must be a pair of two moments, {kind}") from None


def _ticks(moment: Any, unit: int) -> int:
    if unit == 1:
        return operator.index(moment)
    if isinstance(moment, date):
        moment = as_time(moment)
    if not isinstance(moment, np.datetime64) or np.isnat(moment):
        raise TypeError
    return int(moment.astype("datetime64[us]").astype(np.int64))


def _moment(ticks: int, unit: int) -> Any:
    return ticks if unit == 1 else np.datetime64(ticks, "us")


def _refused(block: CustomIntervals, number: int, pair: Any, rule: str) -> ConfigError:
    return ConfigError(_SOURCE, "factory", block.factory, f"interval {number} of its function, {pair!r}: {rule}")
