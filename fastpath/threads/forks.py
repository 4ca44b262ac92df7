"""Resets after a fork: objects whose locks a thread of the parent process may hold."""

import os
import weakref
from collections.abc import Callable

_resets: "set[weakref.WeakMethod[Callable[[], None]]]" = set()


def reset_after_fork(reset: Callable[[], None]) -> None:
    """Call a bound method in every forked process, as long as its object lives."""
    _resets.add(weakref.WeakMethod(reset, _resets.discard))


def _reset_all() -> None:
    for reference in _resets.copy():
        if (reset := reference()) is not None:
            reset()


os.register_at_fork(after_in_child=_reset_all)
