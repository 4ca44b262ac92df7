"""The program of a parser's process: ``python -m modyn_dagster.training.parsing.worker package.module:function per``.

It answers requests on its standard input until that is closed, which is also how it notices that its parent is gone.
"""

import os
import queue
import signal
import sys
import threading
from typing import BinaryIO, Literal

from modyn_dagster.imports import import_callable
from modyn_dagster.training.parsing.function import Function, NotArrays, ParseFailed
from modyn_dagster.training.parsing.wire import receive_blobs, send_columns, send_failure, send_ready


def main(path: str, per: Literal["batch", "sample"]) -> None:
    """Serve until the parent closes the pipe."""
    # Ctrl-C reaches the whole group of processes; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests, answers = _pipes()
    waiting: queue.SimpleQueue[list[bytes]] = queue.SimpleQueue()
    # A thread of its own, so that the end of the parent ends a parser that is at work.
    threading.Thread(target=_listen, args=(requests, waiting), daemon=True).start()
    function = Function(import_callable(path, source="parser", field="function"), per)
    send_ready(answers)
    while True:
        blobs = waiting.get()
        try:
            send_columns(answers, function(blobs))
        except (ParseFailed, NotArrays) as error:
            send_failure(answers, error)


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    """Our pipes, out of reach of code that reads the standard input or prints."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return requests, answers


def _listen(requests: BinaryIO, waiting: "queue.SimpleQueue[list[bytes]]") -> None:
    try:
        while True:
            waiting.put(receive_blobs(requests))
    except (EOFError, OSError):
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], "sample" if sys.argv[2] == "sample" else "batch")
