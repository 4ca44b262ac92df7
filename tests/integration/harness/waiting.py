"""Waiting for something to become true, and saying what did not."""

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
_POLL_SECONDS = 0.2


def wait_for(what: str, look: Callable[[], _T | None], seconds: float = 120, why: Callable[[], str] = str) -> _T:
    """Wait for ``look`` to return neither None nor False; return that, or raise an ``AssertionError`` ending with ``why()``."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        assert time.monotonic() < deadline, f"{what}: not after {seconds:.0f} s\n{why()}"
        time.sleep(_POLL_SECONDS)
