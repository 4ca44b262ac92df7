"""Being asked to stop: Ctrl-C, TERM and a closed terminal are one thing here."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Final

_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Turn the first of these signals into ``KeyboardInterrupt``; later ones do not disturb the tidying up it causes.

    Also where a shell started the process in the background, and so with Ctrl-C ignored.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for each in _STOPPING:
            # Not SIG_IGN: programs started while tidying up would inherit it.
            signal.signal(each, lambda _number, _frame: None)
        raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupt) for each in _STOPPING}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
