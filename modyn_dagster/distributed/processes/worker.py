"""Program of a worker of a pool, and of a rank of a group: ``python -m modyn_dagster.distributed.processes.worker``.

It makes the calls that come on its standard input, one after the other. It ends at once when its parent does, also in the
middle of a call.
"""

import os
import queue
import threading
import time
from typing import BinaryIO, Final

from modyn_dagster.distributed.children import own_pipes
from modyn_dagster.distributed.messages import answer_call, receive, send

#: First message of a worker.
READY: Final = b"ready"
#: Seconds between two looks at the parent, for a pipe that some other process holds open.
_LOOK: Final = 1.0


def main() -> None:
    """Serve until the parent closes the pipe or is gone."""
    parent = os.getppid()
    requests, answers = own_pipes()
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    # Threads of their own, so that the end of the parent ends a call that is under way.
    threading.Thread(target=_listen, args=(requests, waiting), daemon=True).start()
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    send(answers, READY)
    while True:
        send(answers, answer_call(waiting.get()))


def _listen(requests: BinaryIO, waiting: "queue.SimpleQueue[bytes]") -> None:
    try:
        while True:
            waiting.put(receive(requests))
    except (EOFError, OSError):
        os._exit(0)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(0)


if __name__ == "__main__":
    main()
