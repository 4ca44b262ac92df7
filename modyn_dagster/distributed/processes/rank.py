"""Program of a rank: ``python -m modyn_dagster.distributed.processes.rank DESCRIPTOR``.

It reads one call from the pipe with this descriptor, answers with its result or error, and ends when its parent is gone.
"""

import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any, Final

from modyn_dagster.distributed.messages import answer_call

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
    pipe.send_bytes(answer_call(content))


def _follow(pipe: "Connection[Any, Any]") -> None:
    try:
        pipe.recv_bytes()
    except (EOFError, OSError):
        os._exit(_LOST_PARENT)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
