"""Generators of intervals as users write them: good ones, and one for each law that they break."""

import itertools
import random
from typing import Any

import numpy as np

SECOND = np.timedelta64(1_000_000, "us")


def months(every: int = 1) -> Any:
    def intervals(start: Any, end: Any, _: Any) -> Any:
        month, step = start.astype("datetime64[M]"), np.timedelta64(every, "M")
        while month < end:
            yield month, month + step
            month += step

    return intervals


def tumbling(seconds: int) -> Any:
    def intervals(start: Any, end: Any, _: Any) -> Any:
        step = seconds if isinstance(start, int) else seconds * SECOND
        while start < end:
            yield start, start + step
            start += step

    return intervals


def between_triggers() -> Any:
    def intervals(start: Any, end: Any, training: Any) -> Any:
        reached = None
        for first, last in training:
            begin = first if reached is None else reached
            reached = max(begin, last + (1 if isinstance(last, int) else np.timedelta64(1, "us")))
            if begin < reached:
                yield begin, reached

    return intervals


def n_trainings() -> Any:
    return lambda start, end, training: [(start, end)] if training else []


def nothing() -> Any:
    return lambda *_: []


def returning(value: Any) -> Any:
    return lambda *_: value


def failing() -> Any:
    def intervals(*_: Any) -> Any:
        raise KeyError("no calendar")

    return intervals


def endless() -> Any:
    return lambda start, end, _: ((start + n, start + n + 1) for n in itertools.count())


def cut() -> Any:
    """The last interval ends with the stream, so it becomes another one as the stream grows."""
    return lambda start, end, _: [(start, end - np.timedelta64(1, "us"))]


def looking_back() -> Any:
    """The interval before the last day appears when it has long been over."""
    return lambda start, end, _: [(start, end - np.timedelta64(1, "D"))] if end - start > np.timedelta64(2, "D") else []


def by_chance() -> Any:
    return lambda start, end, _: [(start, start + np.timedelta64(random.randint(1, 10**9), "us"))]  # noqa: S311 - chance is the fault


def counted() -> Any:
    calls = itertools.count(1)
    return lambda start, end, _: [(start, start + next(calls) * SECOND)]
