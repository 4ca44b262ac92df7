"""Program of a rank: ``python -m modyn_dagster.distributed.processes.rank DESCRIPTOR``.

It reads one call from the pipe with this descriptor, answers with its result or error, and ends when its parent is gone.
"""

import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, Final

from modyn_dagster.errors import RunError

_LOST_PARENT: Final = 1


def main(pipe: "Connection[Any, Any]") -> None:
    """Make the call that the parent asks for."""
    # Ctrl-C reaches the whole group of processes; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        content = pipe.recv_bytes()
    except EOFError:
        return
    # A thread of its own, so that the end of the parent ends a rank that is at work.
    threading.Thread(target=_follow, args=(pipe,), daemon=True).start()
    try:
        function, rank, argument = pickle.loads(content)  # noqa: S301 - of our parent
        answer = pickle.dumps((function(rank, argument), []))
    except Exception as error:  # noqa: BLE001 - raised again by the parent
        error.add_note("".join(traceback.format_exception(error)))
        answer = pickle.dumps((None, [*map(portable, _with_causes(error))]))
    pipe.send_bytes(answer)


def portable(error: BaseException) -> Exception:
    """Return an error that arrives in another process as it is, or a ``RunError`` with its class and message."""
    if isinstance(error, Exception):
        try:
            if type(pickle.loads(pickle.dumps(error))) is type(error):  # noqa: S301 - our own bytes
                return error
        except Exception:  # noqa: BLE001, S110 - a class of the project may raise anything here
            pass
    return RunError(f"{type(error).__name__}: {error}")


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _follow(pipe: "Connection[Any, Any]") -> None:
    try:
        pipe.recv_bytes()
    except (EOFError, OSError):
        os._exit(_LOST_PARENT)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
