"""Calls that their caller need not wait for: of servers that never answer, and of code of users that never ends."""

import os
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from pathlib import Path
from threading import Thread
from typing import Final, Generic, TypeVar

T = TypeVar("T")

#: Folders of code that waits on behalf of others: the standard library, installed packages, and this package.
_LIBRARIES: Final = (*(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")), str(Path(__file__).parent))
_NOT_OF_USERS: Final = ("<", *(f"{folder}{os.sep}" for folder in _LIBRARIES))


class StillGoing(Exception):
    """Call that has not ended in time."""


class BoundedCall(Generic[T]):
    """A call in a thread of its own, with the context variables of its caller, that begins at once.

    Nothing can end a thread. One that hangs is left behind, and does not keep the process from ending.

    >>> BoundedCall("sum", lambda: 1 + 1).result(within=10)
    2
    """

    def __init__(self, name: str, work: Callable[[], T]) -> None:
        self._answer: Future[T] = Future()
        self._work = work
        self._begin = time.monotonic()
        self._thread = Thread(target=copy_context().run, args=[self._run], name=name, daemon=True)
        self._thread.start()

    @property
    def seconds(self) -> float:
        """Time since it began."""
        return time.monotonic() - self._begin

    @property
    def has_ended(self) -> bool:
        """True once there is a result or an error."""
        return self._answer.done()

    def result(self, within: float) -> T:
        """Result or error of the call; ``StillGoing`` if it has neither after so many seconds."""
        try:
            return self._answer.result(within)
        except TimeoutError:
            if self._answer.done():
                return self._answer.result()
            raise StillGoing from None

    def place(self) -> str:
        """Function that the call is in, as ``function (file:line)``: the innermost one of a user's code if it is in any."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        stack = traceback.extract_stack(frame)
        if frame is None or not stack:
            return "its end"
        own = [entry for entry in stack if not entry.filename.startswith(_NOT_OF_USERS)]
        entry = (own or stack)[-1]
        return f"{entry.name} ({entry.filename}:{entry.lineno})"

    def _run(self) -> None:
        try:
            self._answer.set_result(self._work())
        except BaseException as error:  # noqa: BLE001 - raised again for the caller
            self._answer.set_exception(error)
