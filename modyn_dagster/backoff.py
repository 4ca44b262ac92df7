"""Pauses between attempts that double up to a longest one, and waiting for a condition."""

import time
from collections.abc import Callable, Iterator
from typing import Final

#: Doublings after which a pause is longer than any that is asked for; more of them would overflow.
_MOST_DOUBLINGS: Final = 64


def growing_pause(first: float, attempt: int, longest: float) -> float:
    """Seconds to pause after an attempt, counted from 1.

    >>> [growing_pause(30, attempt, longest=3600) for attempt in (1, 2, 3, 10)]
    [30.0, 60.0, 120.0, 3600]
    """
    return min(longest, first * 2.0 ** min(attempt - 1, _MOST_DOUBLINGS))


def growing_pauses(first: float, longest: float) -> Iterator[float]:
    """The pauses after attempt 1, 2, 3 and so on, without end."""
    pause = min(first, longest)
    while True:
        yield pause
        pause = min(longest, 2 * pause)


def wait_until(condition: Callable[[], bool], *, timeout: float, first: float, longest: float | None = None) -> bool:
    """Wait for a condition; False if it is not met in time.

    Args:
        condition: asked at once, then after every pause.
        timeout: seconds after which to give up.
        first: seconds of the first pause.
        longest: seconds of the longest pause; default: all pauses are equally long.
    """
    deadline, pauses = time.monotonic() + timeout, growing_pauses(first, first if longest is None else longest)
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(next(pauses))
    return True
