"""Waiting for transient errors to pass, with growing pauses, up to a longest time without progress.

Waiting takes no step: whatever was committed stays, and what is done again starts from the catalog. A process that is killed
while it waits therefore leaves what any killed process leaves.
"""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from typing import Final, TypeVar

from modyn_dagster.backoff import growing_pauses
from modyn_dagster.errors import StillFailing, is_transient, one_line

T = TypeVar("T")

#: Seconds of the first and of the longest pause.
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0

#: Receives a line for every pause: the error, the moment it was met first, and the moment after which it is no longer waited for.
Say = Callable[[str], object]


class Patience:
    """Waits out transient errors.

    Args:
        longest: seconds to wait without progress: those of the pauses, and of every attempt between two of them up to 30.
        say: receives a line for every pause.
        clock: seconds since some moment.
        sleep: pauses.
    """

    def __init__(
        self,
        longest: float,
        say: Say | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._longest, self._say = longest, say
        self._clock, self._sleep = clock, sleep
        self._began: float | None = None
        self._waited = self._resumed = 0.0
        self._pauses = growing_pauses(_FIRST_PAUSE, _LONGEST_PAUSE)

    def progress(self) -> None:
        """End the current wait: the next error is waited for as long as the first one."""
        self._began = None

    def pause(self, error: Exception) -> None:
        """Say what is waited for, since when and until when, and pause.

        Raises:
            Exception: the error itself, if it is not transient.
            StillFailing: it has been waited for long enough.
        """
        if not is_transient(error) or isinstance(error, StillFailing):
            raise error
        now = self._clock()
        if self._began is None:
            self._began, self._waited, self._pauses = now, 0.0, growing_pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
        else:
            # An attempt that met the error at once was part of the wait; one that trained for hours was not.
            self._waited += min(now - self._resumed, _LONGEST_PAUSE)
        waited = self._waited
        if self._say is not None:
            moment = datetime.now().astimezone()
            since = moment - timedelta(seconds=now - self._began)
            until = moment + timedelta(seconds=max(0.0, self._longest - waited))
            self._say(f"waits since {since:%Y-%m-%d %H:%M:%S} until {until:%Y-%m-%d %H:%M:%S} at most for: {one_line(error)}")
        if waited >= self._longest:
            raise StillFailing(waited, one_line(error)) from error
        pause = min(next(self._pauses), self._longest - waited)
        self._sleep(pause)
        self._waited += pause
        self._resumed = self._clock()


def patiently(longest: float, work: Callable[[], T], say: Say | None = None, *, again: Callable[[], T] | None = None) -> T:
    """Return the result of a function, called again while its errors are transient.

    Args:
        longest: seconds to wait for an error to pass.
        work: called first.
        say: receives a line for every pause.
        again: called after a pause; default: ``work``.

    Raises:
        Exception: an error that is not transient.
        StillFailing: a transient one that did not pass in time.
    """
    patience = Patience(longest, say)
    while True:
        try:
            return work()
        except Exception as error:  # noqa: BLE001 - raised again unless it is transient
            patience.pause(error)
        work = again or work


def patient_events(
    begin: Callable[[], Iterator[T]], patience: Patience, is_progress: Callable[[T], bool]
) -> Generator[T, None, None]:
    """Yield the events of an iterator that is begun again after a transient error. Raises as ``patiently`` does."""
    while True:
        try:
            with closing(begin()) as events:  # type: ignore[type-var]  # generators have `close`
                for event in events:
                    if is_progress(event):
                        patience.progress()
                    yield event
            return
        except Exception as error:  # noqa: BLE001 - raised again unless it is transient
            patience.pause(error)
